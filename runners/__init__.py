"""Where pipelines run: one module for each Beam runner."""
