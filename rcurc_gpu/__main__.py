"""``python -m rcurc_gpu`` is the command ``rcurc-gpu``."""

from .cli import run

if __name__ == "__main__":
    run()
