#include <inttypes.h>

#include "common/codec/progress.h"
#include "common/codec/units.h"
#include "common/os/clock.h"
#include "server/ctl/ctl.h"

struct checking {
    struct ctl *ctl;
    struct progress *bar;
    json_t *findings;
};

static void on_ctl_verify_row(void *arg, const json_t *row)
{
    struct checking *k = arg;

    json_array_append(k->findings, json_object_get(row, "finding"));
    progress_wipe(k->bar);
    say(k->ctl, "%s\n", get_str(row, "finding"));
}

static void on_progress(void *arg, uint64_t done, uint64_t total)
{
    struct checking *k = arg;

    progress_draw(k->bar, done, total, clock_now_ms());
}

/* Without a daemon the store may be opened from here: mirrord itself does it. Returns only when
 * that fails. */
static int offline(const struct ctl *c, bool deep, bool repair, struct err *e)
{
    char program[] = "mirrord", check[] = "--verify", file[] = "-c", read_all[] = "--deep",
         mend[] = "--repair", json[] = "--json";
    char *argv[8] = {program, check, file, (char *)(uintptr_t)c->config};
    size_t n = 4;

    if (deep) {
        argv[n++] = read_all;
    }
    if (repair) {
        argv[n++] = mend;
    }
    if (c->json) {
        argv[n++] = json;
    }
    say(c, "no daemon is running at %s: checking the store of %s directly\n", c->socket, c->config);
    return run_mirrord(argv, e);
}

int ctl_verify(struct ctl *c, struct err *e)
{
    bool deep = option_given(c, "--deep"), repair = option_given(c, "--repair");
    struct checking k = {.ctl = c};
    json_t *req = request("verify"), *ok = NULL;
    char bytes[UNITS_TEXT];
    bool clean = false;
    int rc;

    json_object_set_new(req, "deep", json_boolean(deep));
    json_object_set_new(req, "repair", json_boolean(repair));
    k.findings = json_array();
    k.bar = c->json || c->quiet ? NULL : progress_open("verify");
    progress_counts(k.bar, "files");
    rc = ask(c, req, on_ctl_verify_row, on_progress, &k, &ok, e);
    progress_close(&k.bar);
    if (rc == E_NETWORK) {
        json_decref(k.findings);
        return offline(c, deep, repair, e);
    }
    if (rc == 0) {
        clean = get_bool(ok, "clean");
        size_format(get_u64(ok, "bytes"), bytes);
        say(c,
            "%" PRIu64 " %s, %s; removed %" PRIu64 " %s; damaged %" PRIu64 ", missing %" PRIu64
            ", bad rows %" PRIu64 ", repaired %" PRIu64 "\n",
            get_u64(ok, "blobs"), plural(get_u64(ok, "blobs"), "file", "files"), bytes,
            get_u64(ok, "orphans"), plural(get_u64(ok, "orphans"), "orphan", "orphans"),
            get_u64(ok, "damaged"), get_u64(ok, "missing"), get_u64(ok, "bad_rows"),
            get_u64(ok, "repaired"));
        if (c->json) {
            json_object_set(ok, "findings", k.findings);
            print_json(ok);
        }
    }
    json_decref(k.findings);
    json_decref(ok);
    return rc != 0 ? rc : clean ? 0 : 65;
}
