"""How a command ends when Ctrl-C comes before it has begun. Imports nothing, so it is there from the first moment on."""

STOPPED = 130  # exit code after Ctrl-C, as shells have it
STOPPED_EARLY = "\nStopped. Nothing was saved.\n"
