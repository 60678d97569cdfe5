/* publish.c - trainagent publish. */
#include "agent/command.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <unistd.h>

#include "agent/publish/publish.h"
#include "common/base/log.h"
#include "common/codec/units.h"

/* How often a folder is looked into, and after which pause an error of the moment is tried
 * again. */
enum { LOOK_S = 1, AGAIN_S = 5 };

/* The checkpoint may have made room for newer ones while it was read or sent, and the mirror may be
 * away. */
static bool may_pass(int rc)
{
    return rc == E_NOTFOUND || rc == E_CHANGED || rc == E_NETWORK || rc == E_TIMEOUT ||
           rc == E_AGAIN;
}

/* Each is all or nothing, as publish() does it; those that come while one is sent may be left out.
 * Returns with an error that stays. */
static int follow(const struct verb_line *v, const struct publish_params *w, struct err *e)
{
    struct publish_params later = *w;
    int64_t done = -1;

    later.after = &done;
    while (true) {
        struct publish_result r;
        int rc = publish(v->agent, &later, &r, e);

        if (rc == 0 && r.files != 0) {
            log_info("publish.followed", "to=%s step=%" PRId64 " files=%" PRIu64 " version=%s",
                     w->to, r.step, r.files, r.version);
            done = r.step;
        } else if (rc != 0 && may_pass(rc)) {
            log_warn("publish.later", "%s", e->text);
        } else if (rc != 0) {
            return rc;
        }
        sleep(rc == 0 ? LOOK_S : AGAIN_S);
    }
}

static int run_publish(struct verb_line *v, struct err *e)
{
    struct publish_params w = {.if_match = v->if_match};
    struct publish_result r;
    char root[DIGEST_HEX + 1];
    char size[UNITS_TEXT];
    int rc;

    if (v->argc != 2) {
        return err_set(e, E_USAGE,
                       "publish needs DIR and TO, as in trainagent publish out models/me/gpt2");
    }
    if (v->follow && v->if_match != NULL) {
        return err_set(e, E_USAGE,
                       "--follow publishes more than once and cannot be combined with --if-match");
    }
    w.dir = v->argv[0];
    w.to = v->argv[1];
    rc = agent_open(v->agent, AGENT_MIRROR, e);
    if (rc == 0 && v->follow) {
        return follow(v, &w, e);
    }
    rc = rc != 0 ? rc : publish(v->agent, &w, &r, e);
    if (rc != 0) {
        return rc;
    }
    digest_format(&r.root, root);
    if (v->agent->json) {
        json_t *o =
            json_pack("{s:s, s:s, s:s, s:I, s:I}", "to", w.to, "root", root, "version", r.version,
                      "files", (json_int_t)r.files, "bytes", (json_int_t)r.bytes);
        json_dumpf(o, stdout, JSON_COMPACT);
        fputc('\n', stdout);
        json_decref(o);
    } else if (!v->agent->quiet && isatty(STDERR_FILENO)) {
        size_format(r.bytes, size);
        fprintf(stderr, "%s: %" PRIu64 " %s, %s, published as %s\n", w.to, r.files,
                plural(r.files, "file", "files"), size, r.version[0] != '\0' ? r.version : root);
    }
    return 0;
}

const struct agent_verb verb_publish = {
    .name = "publish",
    .run = run_publish,
    .args = "DIR TO",
    .help = "publish a folder to a hosted repository, completely or not at all",
    .example = "trainagent publish out/checkpoint-1000 models/me/gpt",
};
