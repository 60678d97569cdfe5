/* publish.c - trainagent publish. */
#include "agent/verb.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <unistd.h>

#include "agent/publish/publish.h"
#include "common/codec/units.h"

static int run_publish(struct verb_line *v, struct err *e)
{
    struct publish_want w = {.if_match = v->if_match};
    struct publish_result r;
    char root[DIGEST_HEX + 1];
    char size[UNITS_TEXT];
    int rc;

    if (v->argc != 2) {
        return err_set(e, E_USAGE,
                       "publish takes DIR and TO: trainagent publish out models/me/gpt2");
    }
    w.dir = v->argv[0];
    w.to = v->argv[1];
    rc = agent_open(v->agent, true, e);
    if (rc == 0) {
        rc = publish(v->agent, &w, &r, e);
    }
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
    .line = "publish DIR TO                    put a folder into a hosted repository, whole or not",
};
