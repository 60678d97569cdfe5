#include <inttypes.h>

#include "common/codec/units.h"
#include "common/os/clock.h"
#include "server/admin/admin.h"
#include "server/admin/client_lines.h"
#include "server/admin/sample.h"
#include "server/admin/inventory_page.h"
#include "server/admin/trouble.h"
#include "server/live/modules.h"
#include "server/fetch/request.h"
#include "server/page/html.h"
#include "server/rsync/door.h"

#include "page.gen.h" /* page_html, page_css, page_js, copy_js: from page/, by the Makefile */

struct view { /* one page being written */
    struct buf *out;
    const struct sample *s;
    struct slice base; /* "http://mirror:8080" */
    bool logged_in;
    struct traffic_sum all;
};

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

static bool is_published(const struct view *v, const char *name)
{
    for (size_t i = 0; i < v->s->syncs; i++) {
        if (strcmp(v->s->sync[i].name, name) == 0) {
            return v->s->sync[i].head.seq != 0;
        }
    }
    return false;
}

/* A link to the pages of a Hub's repositories, or to the folder of what was mirrored whole; others
 * have nothing to list. */
static void write_name(struct view *v, const char *name)
{
    const struct repo *r = repo_set_find(v->s->set, slice_str(name));
    enum inventory_kind kind;

    if (r != NULL && inventory_kind_of(r, &kind)) {
        buf_addf(v->out, "<a href=\"" INVENTORY_PAGES "%s/\">%s</a>", name, name);
    } else if (r != NULL && is_published(v, name)) {
        buf_addf(v->out, "<a href=\"/%s/\">%s</a>", name, name);
    } else {
        buf_str(v->out, name);
    }
}

static bool origin_fails(const struct repo *r)
{
    struct origin_health h = {0};

    if (r->origin != NULL) {
        origin_health(r->origin, &h);
    }
    return h.failures >= TROUBLE_FAILURES;
}

static void write_repo(struct view *v, const struct repo *r)
{
    struct traffic_sum sum;

    traffic_sum(v->s->deps->traffic, r->slot, &sum);
    buf_addf(v->out, "<tr data-repo=\"%s\"%s><td>", r->name,
             origin_fails(r) ? " class=\"fails\"" : "");
    write_name(v, r->name);
    buf_addf(v->out, "<td>%s<td>", r->ops->name);
    if (r->shown_origin != NULL && r->anonymous_read) {
        html_text(v->out, slice_str(r->shown_origin));
    } else {
        buf_str(v->out, r->shown_origin != NULL ? "by token" : "uploads");
    }
    buf_addf(v->out, "<td>%" PRIu64 "<td>", traffic_requests(&sum));
    html_size(v->out, traffic_bytes(&sum));
    buf_str(v->out, "<td>");
    ratio(v, &sum);
    buf_byte(v->out, '\n');
}

static void write_next(struct view *v, uint64_t unix_s)
{
    uint64_t now = clock_unix_s();

    if (unix_s != 0) {
        buf_str(v->out, "in ");
        html_span(v->out, unix_s - min_u64(unix_s, now));
    }
}

/* A held or failed one is red, and says what to do. */
static void write_sync(struct view *v, const struct sync_view *s)
{
    const struct repo *r = repo_set_find(v->s->set, slice_str(s->name));
    bool seen = r != NULL && r->anonymous_read;
    bool bad = !s->running && !s->paused && (s->held_seq != 0 || s->failures != 0);

    buf_str(v->out, "<tr><td>");
    write_name(v, s->name);
    buf_addf(v->out, "<td>%s%s%s%s<td>", bad ? "<b class=\"bad\">" : "",
             s->running ? "running: " : "", s->ever || s->running ? sync_word(s) : "not run yet",
             bad ? "</b>" : "");
    html_ago(v->out, s->last_ok_unix_s, clock_unix_s());
    buf_str(v->out, "<td>");
    write_next(v, s->paused ? 0 : s->next_unix_s);
    if (s->head.seq != 0) {
        buf_addf(v->out, "<td>v%" PRIu64 "<td>%" PRIu64 "<td>", s->head.seq, s->head.entries);
        html_size(v->out, s->head.bytes);
    } else {
        buf_str(v->out, "<td><td><td>");
    }
    buf_str(v->out, "<td>");
    if (s->running && s->last.stage == RUN_FETCH) {
        buf_addf(v->out, "%" PRIu64 " of %" PRIu64 " %s, ", s->last.files_done, s->last.files_todo,
                 plural(s->last.files_todo, "file", "files"));
        html_size(v->out, s->last.bytes_done);
        buf_str(v->out, " of ");
        html_size(v->out, s->last.bytes_todo);
    } else if (s->ever && s->last.ended_unix_s != 0) {
        buf_addf(v->out, "%s ", run_outcome_name(s->last.outcome));
        html_ago(v->out, s->last.ended_unix_s, clock_unix_s());
    }
    if (bad && seen && s->last.why[0] != '\0') {
        buf_str(v->out, ": ");
        html_text(v->out, slice_str(s->last.why));
    }
    if (!s->ever && !s->running) {
        buf_addf(v->out, " <code>mirrorctl sync run %s</code>", s->name);
    } else if (s->held_seq != 0) {
        buf_addf(v->out, " <code>mirrorctl sync approve %s</code>", s->name);
    } else if (s->head.seq > 1) {
        buf_addf(v->out, " <code>mirrorctl snapshot rollback %s v%" PRIu64 "</code>", s->name,
                 s->head.parent_seq);
    }
    buf_str(v->out, "</td>\n");
}

static void write_syncs(struct view *v)
{
    if (v->s->syncs == 0) {
        return;
    }
    buf_str(v->out, "<h2>Mirrored whole</h2>\n"
                    "<table class=\"syncs\"><thead><tr><th>Name<th>State<th>Last good<th>Next"
                    "<th>Snapshot<th>Entries<th>Size<th>Last run\n<tbody>\n");
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

/* --- the rest --- */

static void write_clients(struct view *v)
{
    const struct admin_deps *deps = v->s->deps;
    const struct http_certificate *tls = v->s->certificates > 0 ? &v->s->certificate[0] : NULL;
    struct client_doors doors = {
        .base = v->base,
        .tls = tls != NULL ? tls->listen : NULL,
        .public = tls != NULL && tls->public,
        .rsync = modules_address(deps->modules),
    };

    for (size_t i = 0; i < v->s->set->count; i++) {
        client_lines(v->out, v->s->set->repo[i], &doors);
    }
}

static void write_fetches(struct view *v)
{
    for (size_t i = 0; i < v->s->fetches; i++) {
        const struct fetch_info *f = &v->s->fetch[i];
        const struct repo *r = repo_set_find(v->s->set, slice_str(f->repo));
        bool known = f->total_bytes != LENGTH_UNKNOWN;
        buf_addf(v->out, "<li>%s/", f->repo);
        html_text(v->out,
                  r != NULL && r->anonymous_read ? slice_str(f->key) : SLICE("\xe2\x80\xa6"));
        buf_str(v->out, "<span> ");
        html_size(v->out, f->have_bytes);
        if (known) {
            buf_str(v->out, " of ");
            html_size(v->out, f->total_bytes);
        }
        buf_str(v->out, ", ");
        html_size(v->out, f->rate_bytes_per_s);
        buf_addf(v->out, "/s, %u reader%s</span><progress", (unsigned)f->readers,
                 f->readers == 1 ? "" : "s");
        if (known) {
            buf_addf(v->out, " max=\"%" PRIu64 "\" value=\"%" PRIu64 "\"",
                     max_u64(f->total_bytes, 1), f->have_bytes);
        }
        buf_str(v->out, "></progress>\n");
    }
}

static void write_swarm(struct view *v, const struct swarm_view *s)
{
    char hex[DIGEST_HEX + 1];

    buf_str(v->out, "<li>");
    if (!swarm_is_public(v->s, s)) {
        buf_str(v->out, "\xe2\x80\xa6");
    } else if (s->key[0] != '\0') {
        buf_addf(v->out, "%s/", s->repo);
        html_text(v->out, slice_str(s->key));
    } else {
        digest_format(&s->digest, hex);
        buf_str(v->out, hex);
    }
    buf_str(v->out, "<span> ");
    html_size(v->out, s->size_bytes);
    buf_addf(v->out,
             ", %zu %s, %zu of %zu %s with them</span><progress max=\"%zu\" value=\"%zu\">"
             "</progress>\n",
             s->count.members, plural(s->count.members, "node", "nodes"), s->count.had,
             s->count.chunks, plural(s->count.chunks, "chunk", "chunks"), s->count.chunks,
             s->count.had);
}

/* Where nodes share nothing there is no word of it. */
static void write_swarms(struct view *v)
{
    if (v->s->set->conf->peers.again_s == 0) {
        return;
    }
    buf_addf(v->out,
             "<section>\n<h2>Shared between nodes</h2>\n<p id=\"swarms-none\"%s>None.</p>\n"
             "<ul id=\"swarms\" class=\"bars\">\n",
             v->s->swarms > 0 ? " hidden" : "");
    for (size_t i = 0; i < v->s->swarms; i++) {
        write_swarm(v, &v->s->swarm[i]);
    }
    buf_str(v->out, "</ul>\n</section>\n");
}

static void write_no_fetches(struct view *v)
{
    buf_str(v->out, v->s->fetches > 0 ? " hidden" : "");
}

/* --- the numbers --- */

static void write_one_trouble(void *arg, const struct trouble *t)
{
    struct buf *out = arg;

    buf_str(out, "<li>");
    if (t->repo != NULL) {
        buf_addf(out, "<b>%s</b>: ", t->repo);
    }
    html_text(out, slice_str(t->what));
    if (t->since_unix_s != 0) {
        buf_str(out, " <span>for ");
        html_span(out, clock_unix_s() - min_u64(t->since_unix_s, clock_unix_s()));
        buf_str(out, "</span>");
    }
    buf_str(out, "<p>");
    html_words(out, slice_str(t->todo));
    buf_str(out, "</p>\n");
}

static void write_troubles(struct view *v)
{
    trouble_each(v->s, false, write_one_trouble, v->out);
}

static void write_no_troubles(struct view *v)
{
    buf_str(v->out, trouble_each(v->s, false, NULL, NULL) == 0 ? " hidden" : "");
}

static void write_state(struct view *v)
{
    const struct admin_deps *deps = v->s->deps;
    size_t troubles = trouble_each(v->s, false, NULL, NULL);

    buf_addf(v->out, "<p id=\"state\"%s>%s",
             troubles > 0 || deps->lifecycle->draining || !deps->lifecycle->ready ? " class=\"bad\""
                                                                                  : "",
             deps->lifecycle->draining ? "draining: the server stops when all transfers are done"
             : !deps->lifecycle->ready ? "not ready"
             : !v->s->healthy          ? "serving only cached objects"
             : v->s->space.full        ? "serving only cached objects"
                                       : "serving");
    if (troubles > 0) {
        buf_addf(v->out, ", %zu %s attention", troubles,
                 plural(troubles, "thing needs", "things need"));
    }
    buf_str(v->out, "</p>");
}

/* Where no listener has TLS there is no word of it; one that expires soon is among the troubles. */
static void write_certificates(struct view *v)
{
    int64_t now = (int64_t)clock_unix_s();
    char text[TLS_VALIDITY_TEXT];

    for (size_t i = 0; i < v->s->certificates; i++) {
        const struct http_certificate *c = &v->s->certificate[i];
        if (!tls_validity_alarms(&c->valid, now)) {
            tls_validity_format(&c->valid, now, text);
            buf_addf(v->out, "<p class=\"certificate\">The certificate of %s %s.</p>\n", c->listen,
                     text);
        }
    }
}

static void write_used(struct view *v)
{
    html_size(v->out, v->s->space.used_bytes);
    buf_str(v->out, " of ");
    html_size(v->out, v->s->space.quota_bytes);
    buf_addf(v->out, " in %" PRIu64 " %s, ", v->s->space.blobs,
             plural(v->s->space.blobs, "file", "files"));
    html_size(v->out, v->s->space.disk_free_bytes);
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

static void write_out_cell(struct view *v)
{
    html_size(v->out, v->s->sent_bytes);
}

static void write_in(struct view *v)
{
    html_size(v->out, v->s->fetched_bytes);
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

static void write_copy(struct view *v)
{
    buf_str(v->out, copy_js);
}

static void write_icon(struct view *v)
{
    buf_str(v->out, HTML_ICON);
}

static void write_version(struct view *v)
{
    buf_str(v->out, MIRROR_VERSION);
}

static void write_logout(struct view *v)
{
    if (v->logged_in) {
        buf_str(v->out, "<a href=\"/-/logout\">log out</a> ");
    }
}

static const struct {
    const char *name;
    void (*write)(struct view *v);
} marks[] = {
    {"STYLE", write_style},
    {"SCRIPT", write_script},
    {"STATE", write_state},
    {"HIT", write_hit},
    {"OUT", write_out_cell},
    {"IN", write_in},
    {"OPEN", write_open},
    {"USED_SHARE", write_used_share},
    {"USED", write_used},
    {"REPOS", write_repos},
    {"CLIENTS", write_clients},
    {"SYNCS", write_syncs},
    {"FILLS", write_fetches},
    {"NO_FILLS", write_no_fetches},
    {"SWARMS", write_swarms},
    {"VERSION", write_version},
    {"LOGOUT", write_logout},
    {"COPY", write_copy},
    {"CERTIFICATES", write_certificates},
    {"ICON", write_icon},
    {"TROUBLES", write_troubles},
    {"NO_TROUBLES", write_no_troubles},
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

void status_page(const struct admin_deps *deps, struct slice base_url, bool logged_in,
                 struct buf *out)
{
    struct view v = {.out = out, .base = base_url, .logged_in = logged_in};
    struct traffic_sum one;
    struct sample s;

    sample_take(deps, &s);
    v.s = &s;
    for (unsigned i = 1; i < traffic_repos(deps->traffic); i++) {
        traffic_sum(deps->traffic, i, &one);
        traffic_join(&v.all, &one);
    }
    expand(&v);
    sample_drop(&s);
}

void status_policy(struct buf *out)
{
    buf_str(out, "default-src 'none'; style-src ");
    html_hash(out, page_css);
    buf_str(out, "; script-src ");
    html_hash(out, page_js);
    buf_byte(out, ' ');
    html_hash(out, copy_js);
    buf_str(out, "; connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; "
                 "form-action 'none'");
}
