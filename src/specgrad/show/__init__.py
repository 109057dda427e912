"""Pictures of windows; those of graphs are drawn in graph/, reports in check/ and bounds/."""
