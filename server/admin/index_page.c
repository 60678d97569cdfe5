#include "server/admin/index_page.h"

#include "server/admin/stock_page.h"
#include "server/page/html.h"

static const struct {
    const char *path, *what;
} own[] = {
    {"/", "status: what is cached, what is under way, what needs attention"},
    {"/-/status.json", "the same for programs"},
    {"/-/tunasync.json", "synced repositories, in the form that lists of mirrors read"},
    {"/metrics", "metrics for Prometheus"},
    {"/healthz", "answers while the process lives"},
    {"/readyz", "answers 503 while requests should go elsewhere"},
};

static void row(struct buf *out, const char *path, const char *name, const char *what)
{
    buf_addf(out, "<tr><td><a href=\"%s%s%s\">%s%s%s</a><td>%s\n", path, name,
             name[0] != '\0' ? "/" : "", path, name, name[0] != '\0' ? "/" : "", what);
}

void index_page(const struct repo_set *set, struct buf *out)
{
    enum stock_kind kind;

    html_begin(out, SLICE("pages - mirrord"));
    buf_str(
        out,
        "<header class=\"folder\">\n<h1><a href=\"/\">mirrord</a> / pages</h1>\n"
        "<p id=\"state\">the daemon's own pages</p>\n</header>\n<main>\n<table class=\"index\">\n");
    for (size_t i = 0; i < ARRAY_LEN(own); i++) {
        row(out, own[i].path, "", own[i].what);
    }
    for (size_t i = 0; i < set->count; i++) {
        if (stock_kind_of(set->repo[i], &kind)) {
            row(out, STOCK_PAGES, set->repo[i]->name,
                kind == STOCK_HOSTED ? "repositories that were uploaded here"
                                     : "what is here of a Hub's repositories");
        }
    }
    buf_str(out, "</table>\n</main>\n");
    html_end(out, HTML_FOLDER);
}
