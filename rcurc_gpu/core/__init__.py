"""The core: the |I| x |J| intersection as a small matrix of low rank."""
