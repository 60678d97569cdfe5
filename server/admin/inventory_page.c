#include "server/admin/inventory_page.h"

#include <inttypes.h>

#include "common/base/ascii.h"
#include "common/codec/jwrite.h"
#include "common/codec/units.h"
#include "common/codec/url.h"
#include "server/page/html.h"

enum { ROWS = 100, PATH_SHOWN = 300, WORD_BYTES = 8192 };

/* --- parts ------------------------------------------------------------------------------------ */

static bool is_model(struct slice type)
{
    return slice_eqs(type, "models");
}

/* "datasets/org/name", or "org/name" of a model: as mirrorctl and paths have it. */
static void add_inventory_name(struct buf *out, struct slice type, struct slice id)
{
    if (!is_model(type)) {
        buf_addf(out, SLICE_FMT "/", SLICE_ARG(type));
    }
    buf_adds(out, id);
}

/* Of a pulled revision we know when the Hub was last asked for it, of our own and of synced ones
 * when they were made. */
static bool is_pulled(const struct inventory_page *p)
{
    return p->view.r->origin != NULL && !p->view.r->synced;
}

/* What is whole, and what is only partly here, of all. */
static void bar(struct buf *out, uint64_t whole, uint64_t part, uint64_t all)
{
    double w = all != 0 ? 100.0 * (double)min_u64(whole, all) / (double)all : 100;
    double p =
        all != 0 ? 100.0 * (double)min_u64(part, all - min_u64(whole, all)) / (double)all : 0;

    buf_addf(out,
             "<svg class=\"bar\" viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" role=\"img\" "
             "aria-label=\"%.0f %% here\"><rect class=\"none\" width=\"100\" height=\"10\"/>"
             "<rect class=\"whole\" width=\"%.2f\" height=\"10\"/>"
             "<rect class=\"part\" x=\"%.2f\" width=\"%.2f\" height=\"10\"/></svg>",
             w + p, w, w, p);
}

static void sum_cells(struct buf *out, const struct inventory_sum *sum)
{
    if (!sum->known) {
        buf_str(out, "<td>?<td>not listed yet<td>");
        return;
    }
    buf_addf(out, "<td>%" PRIu64 " of %" PRIu64 "<td>", sum->files_here, sum->files);
    html_size(out, sum->bytes_here);
    buf_str(out, " of ");
    html_size(out, sum->bytes);
    buf_str(out, "<td>");
    bar(out, sum->bytes_here, 0, sum->bytes);
}

static void marks(struct buf *out, bool pinned, bool held)
{
    buf_str(out, pinned ? " <b class=\"tag\">pinned</b>" : "");
    buf_str(out, held ? " <b class=\"tag\">held</b>" : "");
}

/* <a> to a repository's page, at a revision or none; "</a>" is the caller's. */
static void open_link(struct buf *out, const struct inventory_page *p, struct slice type,
                      struct slice id, struct slice rev)
{
    struct buf query = BUF_INIT(WORD_BYTES);

    buf_addf(out, "<a href=\"" INVENTORY_PAGES "%s/", p->view.r->name);
    add_inventory_name(out, type, id);
    if (rev.n != 0) {
        url_encode(rev, &query);
        buf_addf(out, "?rev=" SLICE_FMT, SLICE_ARG(buf_slice(&query)));
    }
    buf_str(out, "\">");
    buf_free(&query);
}

/* A hosted repository's files as pages of folders, at its live version. */
static void folder_link(struct buf *out, const struct inventory_page *p, struct slice type,
                        struct slice id, const char *word)
{
    buf_addf(out, "<a href=\"/%s/", p->view.r->name);
    add_inventory_name(out, type, id);
    buf_addf(out, "/\">%s</a>", word);
}

static void more_link(struct buf *out, const char *name, struct slice value, uint64_t page,
                      const char *word)
{
    struct buf query = BUF_INIT(WORD_BYTES);

    url_encode(value, &query);
    buf_addf(out, "<a href=\"?%s=" SLICE_FMT "&amp;page=%" PRIu64 "\">%s</a> ", name,
             SLICE_ARG(buf_slice(&query)), page, word);
    buf_free(&query);
}

static void pager(struct buf *out, const struct inventory_page *p, const char *name,
                  struct slice value, uint64_t seen)
{
    if (p->page > 0 || seen > (p->page + 1) * ROWS) {
        buf_str(out, "<p>");
        if (p->page > 0) {
            more_link(out, name, value, p->page - 1, "&larr; before");
        }
        if (seen > (p->page + 1) * ROWS) {
            more_link(out, name, value, p->page + 1, "more &rarr;");
        }
        buf_addf(out, "<span class=\"dim\">%" PRIu64 " in all</span></p>\n", seen);
    }
}

static bool is_on_page(const struct inventory_page *p, uint64_t n)
{
    return n / ROWS == p->page;
}

static bool is_hosted(const struct inventory_page *p)
{
    enum inventory_kind k;

    return inventory_kind_of(p->view.r, &k) && k == INVENTORY_HOSTED;
}

static void heading(struct buf *out, const struct inventory_page *p, bool one)
{
    const struct repo *r = p->view.r;
    struct buf title = BUF_INIT(WORD_BYTES);
    enum inventory_kind k;

    if (one) {
        add_inventory_name(&title, p->type, p->id);
        buf_str(&title, " - ");
    }
    buf_addf(&title, "%s - mirrord", r->name);
    html_begin(out, buf_slice(&title));
    buf_free(&title);
    buf_addf(out,
             "<header class=\"folder\">\n<h1><a href=\"/\">mirrord</a> / <a href=\"" INVENTORY_PAGES
             "%s/\">%s</a>",
             r->name, r->name);
    if (one) {
        buf_str(out, " / <bdi>");
        add_inventory_name(out, p->type, p->id);
        buf_str(out, "</bdi>");
    }
    CHECK(inventory_kind_of(r, &k));
    buf_addf(out, "</h1>\n<p id=\"state\">%s", inventory_kind_name(k));
    if (r->origin != NULL && r->anonymous_read) {
        buf_str(out, ", ");
        html_text(out, slice_str(origin_url(r->origin)));
    }
    buf_str(out, "</p>\n</header>\n<main>\n");
}

/* --- the list --------------------------------------------------------------------------------- */

struct listing {
    const struct inventory_page *p;
    struct buf *out;
    uint64_t seen;
};

static bool contains(struct slice text, struct slice part)
{
    for (size_t at = 0; at + part.n <= text.n; at++) {
        size_t i = 0;
        while (i < part.n && ascii_lower(text.p[at + i]) == ascii_lower(part.p[i])) {
            i++;
        }
        if (i == part.n) {
            return true;
        }
    }
    return false;
}

static bool is_shown(const struct inventory_page *p, const struct inventory_repo *x)
{
    struct buf name = BUF_INIT(WORD_BYTES);
    bool yes;

    add_inventory_name(&name, x->type, x->id);
    yes = contains(buf_slice(&name), p->search) && p->may(p->arg, x->type, x->id);
    buf_free(&name);
    return yes;
}

static int on_repo(void *arg, const struct inventory_repo *x)
{
    struct listing *l = arg;
    struct buf *out = l->out;

    if (!is_shown(l->p, x) || !is_on_page(l->p, l->seen++)) {
        return 0;
    }
    buf_str(out, "<tr><td>");
    open_link(out, l->p, x->type, x->id, SLICE(""));
    add_inventory_name(out, x->type, x->id);
    buf_str(out, "</a>");
    marks(out, x->pinned, x->held);
    buf_addf(out, "<td>%" PRIu64, x->revisions);
    sum_cells(out, &x->sum);
    buf_str(out, "<td>");
    if (is_hosted(l->p)) { /* nobody notes the last activity in trees of our own */
        folder_link(out, l->p, x->type, x->id, "browse");
    } else {
        html_ago(out, x->last_asked_unix_s, l->p->now_unix_s);
    }
    buf_str(out, "</td>\n");
    return out->rc;
}

static void search_form(struct buf *out, const struct inventory_page *p)
{
    buf_str(out, "<form method=\"get\"><input type=\"search\" name=\"q\" aria-label=\"search\" "
                 "placeholder=\"owner/name\" value=\"");
    html_text(out, p->search);
    buf_str(out, "\"> <button>search</button></form>\n");
}

/* A line break is ours: what stands in names has none. */
static void line(struct buf *out, struct slice text)
{
    buf_str(out, "<pre>");
    while (text.n != 0) {
        html_text(out, slice_cut(&text, '\n'));
        buf_str(out, text.n != 0 ? "\n" : "");
    }
    buf_str(out, "</pre>\n");
}

int inventory_page_list(const struct inventory_page *p, struct buf *out, struct err *e)
{
    struct listing l = {p, out, 0};
    struct arena a = {0};
    int rc;

    heading(out, p, false);
    search_form(out, p);
    buf_addf(out,
             "<table class=\"stock list\"><thead><tr><th>Repository<th>Revisions<th>Files here"
             "<th colspan=\"2\">Size here<th>%s</thead>\n<tbody>",
             is_hosted(p) ? "Folder" : "Last activity");
    rc = inventory_each(&p->view, SLICE(""), on_repo, &l, e);
    buf_str(out, "</tbody></table>\n");
    if (rc == 0 && l.seen == 0) {
        buf_str(out, p->search.n != 0 ? "<p>No repository has this in its name.</p>\n"
                     : is_hosted(p)   ? "<p>None yet: uploaded repositories are listed "
                                        "here.</p>\n"
                                      : "<p>None yet: repositories that clients ask for are "
                                        "listed here.</p>\n");
    }
    pager(out, p, "q", p->search, l.seen);
    buf_str(out, "<h2>Use it</h2>\n");
    line(out,
         arena_fmt(&a, "export HF_ENDPOINT=" SLICE_FMT "/%s", SLICE_ARG(p->base), p->view.r->name));
    buf_str(out, "</main>\n");
    html_end(out, HTML_REPOSITORY);
    arena_fini(&a);
    return rc == 0 && out->rc != 0 ? err_set(e, out->rc, "the page is too large") : rc;
}

/* --- one repository --------------------------------------------------------------------------- */

static int on_revision(void *arg, const struct inventory_revision *x)
{
    struct listing *l = arg;
    struct slice rev = x->name.n != 0 ? x->name : x->commit;

    if (l->seen++ >= ROWS) {
        return 0;
    }
    buf_str(l->out, "<tr><td>");
    open_link(l->out, l->p, l->p->type, l->p->id, rev);
    buf_str(l->out, "<bdi>");
    html_text(l->out, x->name.n != 0 ? x->name : SLICE("(commit)"));
    buf_str(l->out, "</bdi></a>");
    marks(l->out, x->pinned, x->held);
    buf_addf(l->out, "<td><code>%.12s</code>", x->commit.n >= 12 ? x->commit.p : "?");
    sum_cells(l->out, &x->sum);
    buf_str(l->out, "<td>");
    html_ago(l->out, x->asked_unix_s, l->p->now_unix_s);
    buf_str(l->out, "</td>\n");
    return l->out->rc;
}

static int on_inventory_file(void *arg, const struct inventory_file *f)
{
    struct listing *l = arg;
    char name[DIGEST_HEX + 1];

    if (!is_on_page(l->p, l->seen++)) {
        return 0;
    }
    if (f->lfs) {
        digest_format(&f->sha256, name);
    } else {
        git_oid_format(&f->oid, name);
    }
    buf_str(l->out, "<tr><td><bdi>");
    html_text(l->out, slice_first(f->path, min_u64(f->path.n, PATH_SHOWN)));
    buf_addf(l->out, "</bdi>%s<td><code title=\"%s\">%.12s</code><td>",
             f->path.n > PATH_SHOWN ? "&hellip;" : "", name, name);
    html_size(l->out, f->size_bytes);
    buf_addf(l->out, "<td>%s<td>", inventory_state_name(f->state));
    bar(l->out, f->state == INVENTORY_WHOLE ? f->size_bytes : 0,
        f->state == INVENTORY_PARTIAL ? f->have_bytes : 0,
        f->state == INVENTORY_WHOLE || f->size_bytes != 0 ? f->size_bytes : 1);
    buf_byte(l->out, '\n');
    return l->out->rc;
}

/* The agent knows a Hub's mirror by its usual name, and our own models by theirs. */
static void write_agent(struct buf *out, const struct inventory_page *p, struct slice word)
{
    const char *repo = p->view.r->name;
    struct buf text = BUF_INIT(WORD_BYTES);

    if (strcmp(repo, "hf") != 0 && (p->view.r->origin != NULL || !is_model(p->type))) {
        return;
    }
    buf_addf(&text, "TRAINAGENT_MIRROR=" SLICE_FMT " trainagent pull %s/" SLICE_FMT " --to DIR",
             SLICE_ARG(p->base), repo, SLICE_ARG(word));
    line(out, buf_slice(&text));
    buf_free(&text);
}

static void write_use(struct buf *out, const struct inventory_page *p, struct slice rev)
{
    const char *repo = p->view.r->name;
    bool model = is_model(p->type);
    struct slice one = slice_first(p->type, p->type.n - 1); /* "dataset" */
    struct buf name = BUF_INIT(WORD_BYTES), word = BUF_INIT(WORD_BYTES),
               text = BUF_INIT(WORD_BYTES);

    add_inventory_name(&name, p->type, p->id);
    html_shell_word(&word, rev);
    buf_addf(&text, "HF_ENDPOINT=" SLICE_FMT "/%s hf download " SLICE_FMT, SLICE_ARG(p->base), repo,
             SLICE_ARG(p->id));
    if (!model) {
        buf_addf(&text, " --repo-type " SLICE_FMT, SLICE_ARG(one));
    }
    buf_addf(&text, " --revision " SLICE_FMT, SLICE_ARG(buf_slice(&word)));
    line(out, buf_slice(&text));
    buf_clear(&text);
    buf_addf(&text,
             "import os\nos.environ[\"HF_ENDPOINT\"] = \"" SLICE_FMT
             "/%s\"  # before huggingface_hub is imported\n"
             "from huggingface_hub import snapshot_download\nsnapshot_download(\"" SLICE_FMT "\"",
             SLICE_ARG(p->base), repo, SLICE_ARG(p->id));
    if (!model) {
        buf_addf(&text, ", repo_type=\"" SLICE_FMT "\"", SLICE_ARG(one));
    }
    buf_str(&text, ", revision=");
    jwrite_quoted(&text, rev);
    buf_byte(&text, ')');
    line(out, buf_slice(&text));
    buf_clear(&word);
    buf_addf(&name, "@" SLICE_FMT, SLICE_ARG(rev));
    html_shell_word(&word, buf_slice(&name));
    write_agent(out, p, buf_slice(&word));
    if (is_pulled(p)) {
        buf_clear(&text);
        buf_addf(&text, "mirrorctl hf prefetch %s/" SLICE_FMT " --wait", repo,
                 SLICE_ARG(buf_slice(&word)));
        line(out, buf_slice(&text));
    }
    buf_free(&name);
    buf_free(&word);
    buf_free(&text);
}

static void write_about(struct buf *out, const struct inventory_page *p,
                        const struct inventory_revision *x)
{
    const struct inventory_sum *sum = &x->sum;

    buf_str(out, "<h2>At <bdi>");
    html_text(out, x->name.n != 0 ? x->name : x->commit);
    buf_str(out, "</bdi>");
    marks(out, x->pinned, x->held);
    buf_str(out, "</h2>\n");
    bar(out, sum->bytes_here, 0, sum->bytes);
    buf_addf(out, "<p>%" PRIu64 " of %" PRIu64 " %s here, ", sum->files_here, sum->files,
             plural(sum->files, "file is", "files are"));
    html_size(out, sum->bytes_here);
    buf_str(out, " of ");
    html_size(out, sum->bytes);
    buf_addf(out, "; commit <code>" SLICE_FMT "</code>, ", SLICE_ARG(x->commit));
    buf_str(out, is_pulled(p) ? "checked at the Hub " : "made ");
    html_ago(out, x->asked_unix_s, p->now_unix_s);
    if (x->upstream.n != 0) {
        buf_addf(out, "; rolled back: the Hub has <code>%.12s</code>", x->upstream.p);
    }
    buf_str(out, "</p>\n");
}

/* The files of a revision, or why they are unknown. */
static int write_inventory_files(struct buf *out, const struct inventory_page *p, struct slice rev,
                                 struct err *e)
{
    struct buf rows = BUF_INIT(out->max);
    struct listing l = {p, &rows, 0};
    struct inventory_revision about;
    struct arena a = {0};
    int rc = inventory_files(&p->view, p->type, p->id, rev, &a, &about, on_inventory_file, &l, e);

    if (rc == 0) {
        write_about(out, p, &about);
        buf_str(out, "<table class=\"stock files\"><thead><tr><th>File<th>Digest<th>Size"
                     "<th colspan=\"2\">Here</thead>\n<tbody>");
        buf_adds(out, buf_slice(&rows));
        buf_str(out, "</tbody></table>\n");
        pager(out, p, "rev", rev, l.seen);
    } else if (rc == E_NOTFOUND && p->rev.p == NULL) { /* nobody has asked for its files yet */
        buf_str(out, "<p>");
        html_text(out, slice_str(e->text));
        buf_str(out, "</p>\n");
        rc = 0;
    }
    buf_free(&rows);
    arena_fini(&a);
    return rc;
}

int inventory_page_one(const struct inventory_page *p, struct buf *out, struct err *e)
{
    struct slice rev = p->rev.p != NULL ? p->rev : SLICE("main");
    struct listing l = {p, out, 0};
    int rc;

    heading(out, p, true);
    buf_addf(out,
             "<h2>Revisions</h2>\n<table class=\"stock revisions%s\"><thead><tr><th>Name<th>Commit"
             "<th>Files here<th colspan=\"2\">Size here<th>%s</thead>\n<tbody>",
             is_pulled(p) ? " pulled" : "", is_pulled(p) ? "Checked at the Hub" : "Made");
    rc = inventory_revisions(&p->view, p->type, p->id, on_revision, &l, e);
    buf_str(out, "</tbody></table>\n");
    if (l.seen > ROWS) {
        buf_addf(out, "<p class=\"dim\">%" PRIu64 " more: <code>mirrorctl hf show</code></p>\n",
                 l.seen - ROWS);
    }
    if (is_hosted(p)) {
        buf_str(out, "<p>");
        folder_link(out, p, p->type, p->id, "browse the files of the current version");
        buf_str(out, "</p>\n");
    }
    rc = rc != 0 ? rc : write_inventory_files(out, p, rev, e);
    buf_str(out, "<h2>Use it</h2>\n");
    write_use(out, p, rev);
    buf_str(out, "</main>\n");
    html_end(out, HTML_REPOSITORY);
    return rc == 0 && out->rc != 0 ? err_set(e, out->rc, "the page is too large") : rc;
}
