/* say.c - answers in the format that clients of a Hub understand: X-Error-Code takes precedence
 * over the status, and a plain-http mirror must always send it (the clients' rule "401 means no
 * such repository" only applies to https addresses). */
#include "server/repo/hf/hf.h"

#include "common/codec/jwrite.h"

void say_error(struct hf_ask *k, int status, struct slice code, struct slice message)
{
    struct buf body = BUF_INIT(4096);

    jwrite_open(&body, NULL, '{');
    jwrite_text(&body, "error", message.p != NULL ? message : SLICE("not available"));
    if (slice_eqs(k->at.verb, "lfs-batch")) { /* git-lfs prints this one */
        jwrite_text(&body, "message", message.p != NULL ? message : SLICE("not available"));
    }
    jwrite_close(&body, '}');
    plan_reply(k->p, status, arena_copy(k->a, buf_slice(&body)));
    buf_free(&body);
    k->p->content_type = SLICE("application/json; charset=utf-8");
    if (code.p != NULL) {
        plan_field(k->p, SLICE("x-error-code"), plan_line(code, k->a));
    }
    if (message.p != NULL) {
        plan_field(k->p, SLICE("x-error-message"), plan_line(message, k->a));
    }
    plan_field(k->p, SLICE("cache-control"), SLICE("no-store"));
    if (status == 503) {
        plan_field(k->p, SLICE("retry-after"), SLICE("5"));
    }
}

void say_result(struct hf_ask *k, const struct result *f)
{
    struct slice code = f->code;
    struct slice why;

    if (f->rc == E_NOTFOUND || f->rc == E_DENIED) {
        if (code.p == NULL && f->message.n == 0) {
            code = SLICE("RepoNotFound");
        }
        say_error(k, f->status == 410 ? 404 : f->status, code,
                  f->message.n != 0 ? f->message
                                    : SLICE("the Hub does not have this repository or revision, or "
                                            "shows it only to users who have access to it"));
        return;
    }
    why = arena_fmt(k->a,
                    "not on this mirror yet, and the Hub of repo %s cannot be reached: " SLICE_FMT,
                    k->r->name, SLICE_ARG(f->message));
    /* 504 lets clients fall back to what they have; 503 with a time makes them wait for it. */
    say_error(k,
              f->rc == E_BUSY      ? 503
              : f->rc == E_NOSPACE ? 507
              : f->status == 502   ? 502
                                   : 504,
              SLICE_NONE, why);
    k->p->cached = true;
    k->p->state = CACHE_FAILED;
}

static void say_stale(struct hf_ask *k)
{
    if (k->stale) {
        k->p->cached = true;
        k->p->state = k->in_trouble ? CACHE_STALE : CACHE_UPDATING;
    }
    if (k->in_trouble) {
        plan_field(k->p, SLICE("warning"), SLICE("110 mirrord \"the Hub cannot be reached\""));
        plan_field(k->p, SLICE("x-hf-warning"),
                   arena_fmt(k->a,
                             "mirror; the Hub cannot be reached: %s is in its last known state",
                             k->at.rev.p != NULL ? "this revision" : "this repository"));
    }
}

void say_commit(struct hf_ask *k)
{
    if (k->commit.p != NULL) {
        plan_field(k->p, SLICE("x-repo-commit"), k->commit);
    }
    say_stale(k);
}

void say_json(struct hf_ask *k, struct slice json)
{
    plan_reply(k->p, 200, json);
    k->p->content_type = SLICE("application/json; charset=utf-8");
    plan_field(k->p, SLICE("cache-control"),
               k->reader.n != 0 || k->at.route == HF_AUTH_CHECK ? SLICE("private, no-cache")
                                                                : SLICE("no-cache"));
    say_commit(k);
}

void say_no_file(struct hf_ask *k)
{
    say_error(k, 404, SLICE("EntryNotFound"),
              arena_fmt(k->a, "no \"" SLICE_FMT "\" in " SLICE_FMT " at " SLICE_FMT,
                        SLICE_ARG(k->at.path), SLICE_ARG(k->at.id), SLICE_ARG(k->commit)));
    say_commit(k);
}

void say_failed(const struct repo *r, const struct plan *p, int status, struct slice why,
                struct arena *a, struct http_reply *reply)
{
    struct slice from =
        p->kind == PLAN_LOOKUP && p->fields_of == FIELDS_KNOWN ? SLICE("this file") : SLICE("this");

    if (status >= 500) {
        why = arena_fmt(
            a,
            SLICE_FMT
            " is not on this mirror yet, and the Hub of repo %s did not send it: " SLICE_FMT,
            SLICE_ARG(from), r->name, SLICE_ARG(why));
    }
    reply_add(reply, SLICE("x-error-message"), plan_line(why, a));
}
