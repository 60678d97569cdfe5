#include <inttypes.h>

#include "common/codec/base64.h"
#include "common/codec/units.h"
#include "common/codec/url.h"
#include "common/os/clock.h"
#include "server/admin/admin.h"
#include "server/admin/sample.h"
#include "server/admin/stock_page.h"
#include "server/fetch/fetch.h"

#include "page.gen.h" /* page_html, page_css, page_js: from page/, by the Makefile */

struct view { /* one page being written */
    struct buf *out;
    const struct sample *s;
    struct slice base; /* "http://mirror:8080" */
    struct traffic_sum all;
    uint64_t upstream_bytes;
};

/* Everything that did not come from our own sources passes here. */
static void html(struct buf *out, struct slice s)
{
    for (size_t i = 0; i < s.n; i++) {
        uint8_t c = (uint8_t)s.p[i];
        if (c == '&' || c == '<' || c == '>' || c == '"' || c == '\'') {
            buf_addf(out, "&#%u;", c);
        } else {
            buf_byte(out, c >= ' ' && c < 0x7f ? c : '?');
        }
    }
}

static void size(struct view *v, uint64_t bytes)
{
    char text[UNITS_TEXT];

    size_format(bytes, text);
    buf_str(v->out, text);
}

static void ratio(struct view *v, const struct traffic_sum *sum)
{
    double r = traffic_hit_ratio(sum);

    if (r >= 0) {
        buf_addf(v->out, "%.1f %%", 100 * r);
    } else {
        buf_str(v->out, "&ndash;");
    }
}

/* --- the table of repos --- */

static void write_repo(struct view *v, const struct repo *r)
{
    struct traffic_sum sum;
    enum stock_kind kind;

    traffic_sum(v->s->d->traffic, r->slot, &sum);
    buf_addf(v->out, "<tr data-repo=\"%s\"><td>", r->name);
    if (stock_kind_of(r, &kind)) { /* it has pages of its own */
        buf_addf(v->out, "<a href=\"" STOCK_PAGES "%s/\">%s</a>", r->name, r->name);
    } else {
        buf_str(v->out, r->name);
    }
    buf_addf(v->out, "<td>%s<td>", r->ops->name);
    if (r->origin != NULL && r->anonymous_read) {
        html(v->out, slice_str(origin_url(r->origin)));
    } else {
        buf_str(v->out, r->origin != NULL ? "by token" : "uploads");
    }
    buf_addf(v->out, "<td>%" PRIu64 "<td>", traffic_requests(&sum));
    size(v, traffic_bytes(&sum));
    buf_str(v->out, "<td>");
    ratio(v, &sum);
    buf_byte(v->out, '\n');
}

static void write_ago(struct view *v, uint64_t unix_s, bool ahead)
{
    uint64_t now = clock_unix_s(),
             span = ahead ? unix_s - min_u64(unix_s, now) : now - min_u64(now, unix_s);
    char text[UNITS_TEXT];

    if (unix_s == 0) {
        buf_str(v->out, "-");
        return;
    }
    span_format(span * 1000, text);
    buf_addf(v->out, "%s%s%s", ahead ? "in " : "", text, ahead ? "" : " ago");
}

/* A held or failed one is red, and says what to do. */
static void write_sync(struct view *v, const struct sync_view *s)
{
    const struct repo *r = repo_set_find(v->s->set, slice_str(s->name));
    bool seen = r != NULL && r->anonymous_read;
    bool bad = !s->running && !s->paused && (s->held_seq != 0 || s->failures != 0);

    buf_addf(v->out, "<tr><td>%s<td>%s%s%s<td>", s->name, bad ? "<b class=\"bad\">" : "",
             sync_word(s), bad ? "</b>" : "");
    write_ago(v, s->last_ok_unix_s, false);
    buf_str(v->out, "<td>");
    write_ago(v, s->paused ? 0 : s->next_unix_s, true);
    buf_addf(v->out, "<td>%s%" PRIu64 "<td>%" PRIu64 "<td>", s->head.seq != 0 ? "v" : "",
             s->head.seq, s->head.entries);
    size(v, s->head.bytes);
    buf_str(v->out, "<td>");
    if (s->running && s->last.stage == RUN_FETCH) {
        buf_addf(v->out, "%" PRIu64 " of %" PRIu64 " files, ", s->last.files_done,
                 s->last.files_todo);
        size(v, s->last.bytes_done);
        buf_str(v->out, " of ");
        size(v, s->last.bytes_todo);
    } else if (s->ever && s->last.ended_unix_s != 0) {
        buf_str(v->out, "last run ");
        write_ago(v, s->last.ended_unix_s, false);
        buf_addf(v->out, ": %s ", run_outcome_name(s->last.outcome));
    }
    if (bad && seen) {
        html(v->out, slice_str(s->last.why));
    }
    if (s->held_seq != 0) {
        buf_addf(v->out, " <code>mirrorctl sync approve %s</code>", s->name);
    } else if (s->head.seq > 1) {
        buf_addf(v->out, " <code>mirrorctl snapshot rollback %s v%" PRIu64 "</code>", s->name,
                 s->head.parent_seq);
    }
    buf_byte(v->out, '\n');
}

static void write_syncs(struct view *v)
{
    if (v->s->syncs == 0) {
        return;
    }
    buf_str(v->out,
            "<h2>Mirrored whole</h2>\n<table><thead><tr><th>Name<th>State<th>Last good<th>Next"
            "<th>Snapshot<th>Entries<th>Size<th>\n<tbody>\n");
    for (size_t i = 0; i < v->s->syncs; i++) {
        write_sync(v, &v->s->sync[i]);
    }
    buf_str(v->out, "</table>\n");
}

static void write_repos(struct view *v)
{
    for (size_t i = 0; i < v->s->set->count; i++) {
        write_repo(v, v->s->set->repo[i]);
    }
}

/* --- what to copy into a client --- */

/* Where links of a pypi repo's index begin: an origin that is an index itself, or a site with simple/ below it. */
static const char *index_below(const struct repo *r)
{
    struct url u;

    return url_split(slice_str(origin_url(r->origin)), &u, NULL) == 0 && slice_eqs(u.path, "/")
               ? "simple/"
               : "";
}

static void write_pypi(struct view *v, const struct repo *r)
{
    struct slice host = v->base;
    struct buf index = BUF_INIT(4096);

    buf_addf(&index, SLICE_FMT "/%s/%s", SLICE_ARG(v->base), r->name, index_below(r));
    buf_str(v->out, "<pre>pip install --index-url ");
    html(v->out, buf_slice(&index));
    if (slice_starts(host, SLICE("http://"))) {
        host = slice_from(host, 7);
        buf_str(v->out, " --trusted-host ");
        html(v->out, slice_ends(host, SLICE("]")) ? host : slice_cut(&host, ':'));
    }
    buf_str(v->out, " PACKAGE</pre>\n<pre>export UV_DEFAULT_INDEX=");
    html(v->out, buf_slice(&index));
    buf_str(v->out, "</pre>\n");
    buf_free(&index);
}

static void write_line(struct view *v, const char *before, const char *repo, const char *after)
{
    buf_addf(v->out, "<pre>%s", before);
    html(v->out, v->base);
    buf_addf(v->out, "/%s%s</pre>\n", repo, after);
}

static void write_client(struct view *v, const struct repo *r)
{
    buf_addf(v->out, "<h3>%s</h3>\n", r->name);
    if (strcmp(r->ops->name, "hf") == 0) {
        write_line(v, "export HF_ENDPOINT=", r->name, "");
    } else if (strcmp(r->ops->name, "pypi") == 0) {
        write_pypi(v, r);
    } else if (strcmp(r->ops->name, "hosted") == 0) {
        write_line(v, "curl -H \"Authorization: Bearer $TOKEN\" -T FILE ", r->name,
                   "/OWNER/NAME/FILE");
    } else {
        write_line(v, "wget -c ", r->name, "/PATH");
        write_line(v, "deb ", r->name, " SUITE main");
    }
    buf_str(v->out, "<pre>TRAINAGENT_MIRROR=");
    html(v->out, v->base);
    buf_addf(v->out, " trainagent pull %s/%s</pre>\n", r->name,
             strcmp(r->ops->name, "hosted") == 0 ? "OWNER/NAME" : "PATH");
}

static void write_clients(struct view *v)
{
    for (size_t i = 0; i < v->s->set->count; i++) {
        write_client(v, v->s->set->repo[i]);
    }
}

/* --- the numbers --- */

static void write_state(struct view *v)
{
    const struct daemon *d = v->s->d;

    buf_str(v->out, d->draining        ? "draining: it stops when all transfers are done"
                    : !d->ready        ? "not ready"
                    : v->s->space.full ? "the disk is full: only what is cached is served"
                    : !d->reload_ok    ? "the last reload failed: the old settings stand"
                                       : "serving");
}

static void write_used(struct view *v)
{
    size(v, v->s->space.used_bytes);
    buf_str(v->out, " of ");
    size(v, v->s->space.quota_bytes);
    buf_addf(v->out, " in %" PRIu64 " files, ", v->s->space.blobs);
    size(v, v->s->space.disk_free_bytes);
    buf_str(v->out, " free on the disk");
}

static void write_used_share(struct view *v)
{
    const struct store_space *sp = &v->s->space;

    buf_addf(v->out, "%.1f",
             sp->quota_bytes > 0 ? 100 * (double)sp->used_bytes / (double)sp->quota_bytes : 0);
}

static void write_hit(struct view *v)
{
    ratio(v, &v->all);
}

static void write_out(struct view *v)
{
    size(v, traffic_bytes(&v->all));
}

static void write_in(struct view *v)
{
    size(v, v->upstream_bytes);
}

static void write_open(struct view *v)
{
    buf_addf(v->out, "%" PRIu64, v->s->http.open);
}

static void write_style(struct view *v)
{
    buf_str(v->out, page_css);
}

static void write_script(struct view *v)
{
    buf_str(v->out, page_js);
}

static void write_version(struct view *v)
{
    buf_str(v->out, MIRROR_VERSION);
}

static const struct {
    const char *name;
    void (*write)(struct view *v);
} marks[] = {
    {"STYLE", write_style},     {"SCRIPT", write_script},
    {"STATE", write_state},     {"HIT", write_hit},
    {"OUT", write_out},         {"IN", write_in},
    {"OPEN", write_open},       {"USED_SHARE", write_used_share},
    {"USED", write_used},       {"REPOS", write_repos},
    {"CLIENTS", write_clients}, {"SYNCS", write_syncs},
    {"VERSION", write_version},
};

/* @@NAME@@ in page.html is where write() of that name writes. */
static void expand(struct view *v)
{
    const char *rest = page_html, *mark;

    while ((mark = strstr(rest, "@@")) != NULL) {
        const char *end = strstr(mark + 2, "@@");
        size_t i = 0;
        CHECK(end != NULL);
        buf_add(v->out, rest, (size_t)(mark - rest));
        while (!slice_eqs(slice_of(mark + 2, (size_t)(end - mark - 2)), marks[i].name)) {
            i++;
            CHECK(i < ARRAY_LEN(marks));
        }
        marks[i].write(v);
        rest = end + 2;
    }
    buf_str(v->out, rest);
}

void status_page(struct daemon *d, struct slice base_url, struct buf *out)
{
    struct view v = {.out = out, .base = base_url};
    struct traffic_sum one;
    struct sample s;

    sample_take(d, &s);
    v.s = &s;
    for (unsigned i = 1; i < traffic_repos(d->traffic); i++) {
        traffic_sum(d->traffic, i, &one);
        traffic_join(&v.all, &one);
    }
    v.upstream_bytes = traffic_fetched_all(d->traffic).bytes;
    expand(&v);
    sample_drop(&s);
}

const char *status_style(void)
{
    return page_css;
}

static void policy_hash(struct buf *out, const char *text)
{
    char base64[BASE64_ROOM(DIGEST_BYTES)];
    struct digest d;

    digest_of(slice_str(text), &d);
    base64_encode(d.b, DIGEST_BYTES, base64);
    buf_addf(out, "'sha256-%s'", base64);
}

void status_policy(struct buf *out)
{
    buf_str(out, "default-src 'none'; style-src ");
    policy_hash(out, page_css);
    buf_str(out, "; script-src ");
    policy_hash(out, page_js);
    buf_str(out, "; connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; "
                 "form-action 'none'");
}
