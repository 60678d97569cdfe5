/* pull.c - trainagent pull: one artifact, onto the local cache and to where the user wants it. */
#include "agent/command.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <unistd.h>

#include "agent/peers/peers.h"
#include "agent/pull/artifact.h"
#include "agent/cache/unpack.h"
#include "common/codec/units.h"
#include "common/os/clock.h"

static void say_json(const struct artifact *a, const char *path, uint64_t took_ms)
{
    char hex[DIGEST_HEX + 1];
    json_t *files = json_array();
    json_t *o;

    for (size_t i = 0; i < a->nfiles; i++) {
        digest_format(&a->file[i].digest, hex);
        json_array_append_new(files, json_pack("{s:s%, s:s, s:I}", "name", a->file[i].name.p,
                                               a->file[i].name.n, "sha256", hex, "size",
                                               (json_int_t)a->file[i].size_bytes));
    }
    o = json_pack("{s:s, s:s?, s:I, s:I, s:I, s:I, s:i, s:I, s:o}", "from", a->from, "path", path,
                  "size", (json_int_t)a->size_bytes, "fetched_bytes", (json_int_t)a->fetched_bytes,
                  "mirror_bytes", (json_int_t)(a->fetched_bytes - a->peer_bytes), "peer_bytes",
                  (json_int_t)a->peer_bytes, "peers", (int)a->peers, "took_ms", (json_int_t)took_ms,
                  "files", files);
    if (a->is_folder && !digest_is_zero(&a->root)) {
        digest_format(&a->root, hex);
        json_object_set_new(o, "root", json_string(hex));
    }
    json_dumpf(o, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
    fputc('\n', stdout);
    json_decref(o);
}

/* For people at a terminal; cron hears nothing. */
static void say_plain(const struct artifact *a, uint64_t took_ms)
{
    char size[UNITS_TEXT], took[UNITS_TEXT], rate[UNITS_TEXT];

    if (!isatty(STDERR_FILENO)) {
        return;
    }
    size_format(a->size_bytes, size);
    span_format(took_ms, took);
    size_format(a->fetched_bytes * 1000 / max_u64(took_ms, 1), rate);
    if (a->fetched_bytes == 0) {
        fprintf(stderr, "%s: %s, already in the local cache\n", a->from, size);
    } else {
        fprintf(stderr, "%s: %s in %s (%s/s), verified\n", a->from, size, took, rate);
    }
    if (a->peer_bytes > 0) {
        size_format(a->fetched_bytes - a->peer_bytes, size);
        size_format(a->peer_bytes, rate);
        fprintf(stderr, "%s from the mirror, %s from %u other node%s\n", size, rate, a->peers,
                a->peers == 1 ? "" : "s");
    }
}

static int place_pulled_artifact(struct verb_line *v, struct artifact *a, char path[PATH_MAX],
                                 struct err *e)
{
    if (v->unpack) {
        struct local_cache_lock *hold = NULL;
        int rc;
        if (a->is_folder) {
            return err_set(e, E_USAGE,
                           "%s is a folder, but --unpack is for archives; leave out --unpack",
                           a->from);
        }
        rc = unpack_blob(v->agent->local_cache, &a->file[0].digest, path, &hold, e);
        if (rc == 0 && v->to != NULL) {
            rc = unpack_copy(path, v->to, e);
            snprintf(path, PATH_MAX, "%s", v->to);
        }
        local_cache_unlock(&hold);
        return rc;
    }
    if (v->to != NULL) {
        artifact_path(a, v->to, path);
        return artifact_place(v->agent, a, v->to, e);
    }
    if (!a->is_folder) {
        local_cache_blob_path(v->agent->local_cache, &a->file[0].digest, path);
    }
    return 0;
}

/* The only answer to "where is it?": of a folder each file's place, and its name. */
static void say_where(const struct verb_line *v, const struct artifact *a, const char *path)
{
    char blob[PATH_MAX];

    if (!a->is_folder) {
        puts(path);
    }
    for (size_t i = 0; a->is_folder && i < a->nfiles; i++) {
        local_cache_blob_path(v->agent->local_cache, &a->file[i].digest, blob);
        printf("%s\t" SLICE_FMT "\n", blob, SLICE_ARG(a->file[i].name));
    }
}

static int run_pull(struct verb_line *v, struct err *e)
{
    struct artifact a = {.from = v->argc == 1 ? v->argv[0] : NULL};
    char path[PATH_MAX] = "";
    uint64_t start_ms = clock_now_ms();
    int rc;

    if (a.from == NULL) {
        return err_set(e, E_USAGE,
                       "pull needs one FROM, as in trainagent pull <repo>/<path> [--to DIR]");
    }
    if (v->sha256 != NULL &&
        (!digest_parse(slice_str(v->sha256), &a.digest) || digest_is_zero(&a.digest))) {
        return err_set(e, E_USAGE, "--sha256 needs 64 hex digits");
    }
    v->agent->lingers = true;
    rc = agent_open(v->agent, AGENT_MIRROR, e);
    if (rc == 0) {
        const struct artifacts_params w = {.peer_ops = &peers_ops};
        rc = artifacts_pull(v->agent, &a, 1, &w, e);
    }
    rc = rc != 0 ? rc : place_pulled_artifact(v, &a, path, e);
    if (rc == 0 && v->agent->json) {
        say_json(&a, path[0] != '\0' ? path : NULL, clock_now_ms() - start_ms);
    } else if (rc == 0 && !v->agent->quiet) {
        say_plain(&a, clock_now_ms() - start_ms);
        if (v->to == NULL) {
            say_where(v, &a, path);
        }
    }
    artifact_fini(&a);
    return rc;
}

const struct agent_verb verb_pull = {
    .name = "pull",
    .run = run_pull,
    .args = "FROM",
    .help = "download and verify a file or folder",
    .more =
        "FROM is <repo>/<path>[@version][#sha256=<hex>] on the mirror, a folder if it ends with "
        "'/',\n"
        "or hf/<owner>/<name>[@<rev>]: a repository of a Hub, stored in the layout of the Hub's "
        "client.",
    .example = "trainagent pull hf/openai-community/gpt2 --to ./hf-home",
};
