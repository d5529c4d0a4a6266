/* The extension's regression in C, for bench.cpu_tools: `passes.regress` where it begins at 0, with the rank a constant.

   gcc -O3 -march=native -fopenmp -ffast-math -shared -fPIC -DRANK=5 regress.c */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#define R RANK
#define LANES 16
#define EPS 0x1p-52

static double uniform(uint64_t i, uint64_t j, uint64_t key) {
  uint64_t z = ((i << 32) + j) ^ key;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  z ^= z >> 31;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z ^= z >> 31;
  return (double)(z >> 11) * 0x1p-53;
}

static double cholesky(double G[R][R], double L[R][R]) {
  double size = 0;
  for (int p = 0; p < R; p++) size += G[p][p];
  double ridge = size > 0 ? EPS * size : 1;
  for (int p = 0; p < R; p++)
    for (int q = 0; q <= p; q++) {
      double total = G[p][q];
      for (int s = 0; s < q; s++) total -= L[p][s] * L[q][s];
      L[p][q] = p == q ? sqrt(fmax(total + ridge, ridge)) : total / L[q][q];
    }
  return size + R * ridge;
}

/* Buffers of one thread: D has a row for each unknown. */
typedef struct {
  double *D, *y, *res, *fit, *w;
  int64_t *flip, width;
} Buffers;

static int64_t changes(Buffers *b, int64_t m, double limit) {
  int64_t n = 0;
  for (int64_t t = 0; t < m; t++) {
    double keep = fabs(b->res[t]) < limit && b->fit[t] > 0 ? b->fit[t] : 0;
    b->flip[n] = t;
    n += keep != b->w[t];
  }
  return n;
}

static void update_gram(Buffers *b, int64_t m, int64_t n, double G[R][R]) {
  for (int64_t f = 0; f < n; f++) b->w[b->flip[f]] = b->fit[b->flip[f]] - b->w[b->flip[f]];
  if (2 * n > m) {
    for (int p = 0; p < R; p++)
      for (int q = 0; q <= p; q++) {
        const double *Dp = b->D + p * b->width, *Dq = b->D + q * b->width;
        double total = 0;
        for (int64_t t = 0; t < m; t++) total += b->w[t] * Dp[t] * Dq[t];
        G[p][q] = total;
      }
    return;
  }
  for (int64_t f = 0; f < n; f++) {
    int64_t t = b->flip[f];
    double sign = 2 * b->w[t] - 1;
    for (int p = 0; p < R; p++)
      for (int q = 0; q <= p; q++) G[p][q] += sign * b->D[p * b->width + t] * b->D[q * b->width + t];
  }
}

static void solve(Buffers *b, int64_t m, double G[R][R], double L[R][R], double a[R]) {
  for (int p = 0; p < R; p++) {
    const double *Dp = b->D + p * b->width;
    double total = 0;
    for (int64_t t = 0; t < m; t++) total += b->w[t] * b->y[t] * Dp[t];
    a[p] = total;
  }
  cholesky(G, L);
  for (int p = 0; p < R; p++) {
    for (int q = 0; q < p; q++) a[p] -= L[p][q] * a[q];
    a[p] /= L[p][p];
  }
  for (int p = R - 1; p >= 0; p--) {
    for (int q = p + 1; q < R; q++) a[p] -= L[q][p] * a[q];
    a[p] /= L[p][p];
  }
  for (int64_t t = 0; t < m; t++) {
    double x = b->y[t];
    for (int q = 0; q < R; q++) x -= a[q] * b->D[q * b->width + t];
    b->res[t] = x;
  }
}

static double spread_of(const Buffers *b, int64_t m, double *n_in) {
  double n = 0, square = 0;
  for (int64_t t = 0; t < m; t++) {
    n += b->w[t];
    square += b->w[t] * b->res[t] * b->res[t];
  }
  *n_in = n;
  return sqrt(square / fmax(n - R, 1));
}

static void measure(Buffers *b, int64_t m, double G[R][R], const double *white, double floor, double telling, double *row) {
  double L[R][R], M[R][R], x[R], trace = 0;
  int64_t n_telling = 0, n_agree = 0;
  row[2] = spread_of(b, m, &row[1]);
  for (int64_t t = 0; t < m; t++) {
    n_telling += b->w[t] > 0 && fabs(b->y[t]) > telling;
    n_agree += b->fit[t] < 0 && fabs(b->res[t]) < floor;
  }
  for (int p = 0; p < R; p++)
    for (int q = p + 1; q < R; q++) G[p][q] = G[q][p];
  for (int p = 0; p < R; p++)
    for (int q = 0; q < R; q++) {
      L[p][q] = 0;
      for (int s = 0; s < R; s++) L[p][q] += white[p * R + s] * G[s][q];
    }
  for (int p = 0; p < R; p++)
    for (int q = 0; q < R; q++) {
      M[p][q] = 0;
      for (int s = 0; s < R; s++) M[p][q] += L[p][s] * white[q * R + s];
    }
  double size = cholesky(M, L);
  for (int p = 0; p < R; p++)
    for (int q = p; q < R; q++) {
      double total = q == p;
      for (int s = p; s < q; s++) total -= L[q][s] * x[s];
      x[q] = total / L[q][q];
      trace += x[q] * x[q];
    }
  row[3] = size * trace >= R / sqrt(EPS);
  row[4] = row[2] * sqrt(trace);
  row[5] = n_telling;
  row[7] = n_agree;
}

static int64_t load(Buffers *b, int64_t m, const int32_t *index, const double *value, const double *basis,
                    const double *usable, const int64_t *index_names, int64_t name, int transposed, uint64_t key,
                    double share, double *row) {
  int hold = share > 0 && m >= 8 * R;
  double count = 0;
  int64_t n_held = 0;
  for (int64_t t = 0; t < m; t++) {
    int64_t i = index[t], other = index_names[i];
    b->y[t] = b->res[t] = value[t];
    b->w[t] = 0;
    b->fit[t] = usable[i];
    if (hold && (transposed ? uniform(other, name, key) : uniform(name, other, key)) < share) {
      b->fit[t] = -1 - b->fit[t];
      n_held++;
    }
    for (int q = 0; q < R; q++) b->D[q * b->width + t] = basis[i * R + q];
    count += fmax(b->fit[t], 0);
  }
  for (; m % LANES; m++) {
    b->y[m] = b->res[m] = b->w[m] = b->fit[m] = 0;
    for (int q = 0; q < R; q++) b->D[q * b->width + m] = 0;
  }
  row[0] = count;
  row[6] = n_held;
  return m;
}

void regress(const int64_t *indptr, const int32_t *index, const double *value, const int64_t *units, int64_t n_units,
             const double *basis, const double *usable, const double *white, const int64_t *unit_names,
             const int64_t *index_names, int transposed, uint64_t key, double share, double zeta0, double floor,
             double gamma, int max_steps, double telling, double *coefficients, double *table) {
  int64_t width = LANES;
  for (int64_t k = 0; k < n_units; k++) {
    int64_t m = indptr[units[k] + 1] - indptr[units[k]] + LANES;
    width = m > width ? m : width;
  }
#pragma omp parallel
  {
    double *memory = malloc((R + 4) * width * sizeof(double));
    Buffers b = {memory,
                 memory + R * width,
                 memory + (R + 1) * width,
                 memory + (R + 2) * width,
                 memory + (R + 3) * width,
                 malloc(width * sizeof(int64_t)),
                 width};
#pragma omp for schedule(dynamic, 64)
    for (int64_t k = 0; k < n_units; k++) {
      int64_t unit = units[k], low = indptr[unit];
      double *row = table + 8 * k, *a = coefficients + R * k;
      double G[R][R] = {{0}}, L[R][R];
      int64_t m = load(&b, indptr[unit + 1] - low, index + low, value + low, basis, usable, index_names, unit_names[unit],
                       transposed, key, share, row);
      double zeta = zeta0;
      for (int q = 0; q < R; q++) a[q] = 0;
      for (int step = 0; step < max_steps; step++) {
        int64_t n = changes(&b, m, zeta);
        update_gram(&b, m, n, G);
        if (n > 0 || step == 0) solve(&b, m, G, L, a);
        double n_in, spread = spread_of(&b, m, &n_in);
        if (zeta <= floor && n == 0) break;
        double lower = gamma * zeta;
        if (n_in >= 2 * R && n_in >= 0.5 * row[0]) lower = fmin(lower, 4 * spread);
        zeta = fmax(lower, floor);
      }
      update_gram(&b, m, changes(&b, m, floor), G);
      measure(&b, m, G, white, floor, telling, row);
    }
    free(memory);
    free(b.flip);
  }
}
