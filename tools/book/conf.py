"""The Sphinx configuration of the book. site.py writes the sources and runs Sphinx; nothing is executed.

MyST-NB renders the notebooks with their stored outputs, and the Sphinx book theme surrounds them with menus.
Everything that a page loads is in the build, so that it opens from disk, and under any path.
"""

from __future__ import annotations

from sphinx.application import Sphinx

from tools import launch
from tools.book import render

project, author, language = "Watch it decode", "Watch It Decode contributors", "en"
release = launch.version_tag()
repository = f"{launch.GITHUB}{launch.repository_name()}"
extensions = ["myst_nb", "sphinx_copybutton", "sphinx_sitemap", "sphinxext.opengraph"]
suppress_warnings = ["toc.multiple_toc_parents"]  # 05 is on two of the ways

nb_execution_mode = "off"
nb_merge_streams = True
nb_ipywidgets_js: dict[str, dict[str, str]] = {}  # from a network; `render` shows the views
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_all_links_external = True  # links to cells keep their addresses; `render` completes those to files
myst_heading_anchors = 3
mathjax_path = "tex-svg.js"  # with its letters as outlines: no fonts to load

exclude_patterns = ["static"]
html_theme = "sphinx_book_theme"
html_title = project
html_baseurl = ogp_site_url = launch.site_url()
html_static_path = ["static"]
html_css_files = ["book.css"]
templates_path = ["templates"]
html_favicon = "static/favicon.svg"
html_use_index = html_show_sphinx = html_show_copyright = False
sitemap_url_scheme, sitemap_excludes = "{link}", ["404.html", "search.html"]
copybutton_selector = "div.cell_input pre, div[class*=highlight-]:not(.cell *) pre"
html_theme_options = {
    "repository_url": repository,
    "repository_branch": "main",
    "use_repository_button": True,
    "use_edit_page_button": True,
    "use_issues_button": True,
    "launch_buttons": {
        "colab_url": "https://colab.research.google.com",
        "binderhub_url": "https://mybinder.org",
        "notebook_interface": "jupyterlab",
    },
    "navbar_persistent": [],
    "search_bar_text": "Search",
    "show_toc_level": 2,
    "footer_content_items": ["extra-footer"],
    "extra_footer": (
        f'{project} {release} · code: <a href="{repository}/blob/main/LICENSE">MIT</a> · text and figures: '
        f'<a href="{repository}/blob/main/LICENSE-text">CC BY 4.0</a> · <a href="{repository}">source</a>'
    ),
}


def setup(app: Sphinx) -> None:
    app.config.html_static_path.append(f"{app.srcdir}/static")  # what site.py puts there
    app.connect("builder-inited", lambda app: setattr(app.builder, "search", False))  # search.py has another
    app.connect("source-read", render.read_source)
    app.connect("html-page-context", render.complete_page, priority=900)
