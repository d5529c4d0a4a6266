"""One driver: samples -> core -> extend -> judge -> result."""
