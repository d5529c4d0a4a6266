"""``python -m rcurc_gpu`` is the command ``rcurc-gpu``."""

from .cli import main

if __name__ == "__main__":
    main()
