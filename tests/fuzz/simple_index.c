/* simple_index.c - fuzzes the readers of simple pages: what leaves holds no link that leads past
 * the mirror. */
#include <stdlib.h>

#include "server/repo/repo.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static struct repo *repo;

/* Every anchor and every "url" that we write begins with "../", "./" or is nothing at all. */
static void check_links(struct slice text, struct slice mark)
{
    const char *at = text.p;
    const char *end = text.p + text.n;

    while ((at = memmem(at, (size_t)(end - at), mark.p, mark.n)) != NULL) {
        at += mark.n;
        CHECK(end - at >= 2 && at[0] == '.' && (at[1] == '/' || at[1] == '.'));
    }
}

static void render(const char *variant, const char *type, struct slice doc)
{
    struct plan p = {.lookup.key = SLICE("simple/x/"), .variant = slice_str(variant)};
    struct rewrite_out out = {.body = BUF_INIT(16 << 20)};

    if (repo->ops->rewrite(repo, &p, doc, slice_str(type), SLICE("https://pypi.example/simple/x/"),
                           &out, NULL) == 0) {
        if (strcmp(variant, "text") == 0) {
            check_links(buf_slice(&out.body), SLICE("<a href=\""));
        } else if (strcmp(type, "text/html") == 0) {
            check_links(buf_slice(&out.body), SLICE(",\"url\":\""));
        }
    }
    batch_free(&out.rows);
    buf_free(&out.body);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static const struct repo_conf conf = {.name = "pypi",
                                          .protocol = "pypi",
                                          .origin.url = "https://pypi.example/",
                                          .source = "fuzz"};
    struct slice doc = slice_of(p, n);

    if (repo == NULL && repo_open(&conf, &repo, NULL) != 0) {
        abort();
    }
    render("text", "text/html", doc);
    render("json", "text/html", doc);
    render("text", "application/json", doc);
    render("json", "application/json", doc);
    return 0;
}
