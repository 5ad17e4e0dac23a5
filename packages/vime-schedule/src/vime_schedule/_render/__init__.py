"""Draw plans and pipeline timelines: as text for a terminal, as SVG, and as one self-contained HTML page."""
