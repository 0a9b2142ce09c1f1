"""Settings of every kernel that executes a page: interactive charts share one script of the site.

plotly's own renderers put the script of 5 MB into each page, or load it from a network.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import plotly.io as pio
from plotly.io.base_renderers import MimetypeRenderer


class SiteRenderer(MimetypeRenderer):
    """Show a figure as an element of the page and its data."""

    def to_mimebundle(self, fig_dict: dict[str, Any]) -> dict[str, str]:
        """The figure for the page."""
        layout = fig_dict["layout"]
        # Panels side by side need room, so a small page scrolls them.
        narrow = any(v["domain"][1] - v["domain"][0] < 0.6 for k, v in layout.items() if k.startswith("xaxis"))
        style = f"height: {layout['height']}px" + ("; min-width: 860px" if narrow else "")
        name = f"chart-{uuid4().hex[:12]}"
        # "</" would end the script.
        figure = pio.to_json(fig_dict, validate=False).replace("</", "<\\/")
        # On a phone the buttons would cover the title.
        config = '{responsive: true, displaylogo: false, displayModeBar: innerWidth > 600 && "hover"}'
        draw = f'Plotly.newPlot("{name}", {{...{figure}, config: {config}}})'
        place = f'<div id="{name}" class="plotly-chart" style="{style}"></div>'
        return {"text/html": f'{place}<script>addEventListener("DOMContentLoaded", () => {draw});</script>'}


pio.renderers["site"] = SiteRenderer()
pio.renderers.default = "site"
