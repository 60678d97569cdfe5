/* pins.h - what a job of this node uses: its record protects files of the local cache from gc,
 * its folder has them under their names.
 *
 *   jobs/<job>.json   {"job": "42", "at": <unix_s>, "files": ["<sha256>", ...], "laid": [{"key",
 *                     "stamp", "at"}, ...]}; it exists before the folder does and until after it is
 *                     gone. What is "laid" (spare.h) is kept for the next job that needs it
 *   jobs/<job>/       hard links or copies; MIRROR_STAGED of the job
 *   jobs/<job>.refused   why it has no files, if it has no ticket (agent/slurm/staging.h)
 *
 * The record appears whole or not at all. Whenever its writer is killed, it leaves a record, a
 * folder with some files, or both; pins_drop() or pins_sweep() removes them.
 *
 * threads  any; blocks
 * errors   E_INVALID: not a job's name
 */
#ifndef AGENT_CACHE_PINS_H
#define AGENT_CACHE_PINS_H

#include "agent/cache/cache.h"

enum { PINS_JOB_MAX = 20 };

/* 1 to 20 digits. */
bool pins_job_ok(const char *job);
/* The path of its refusal; `cache` is a folder. */
void pins_refusal(const char *cache, const char *job, char out[PATH_MAX]);
/* The job's folder. */
void pins_folder(const struct local_cache *s, const char *job, char out[PATH_MAX]);
struct pins_laid { /* a folder of links below the job's, and its key as a spare */
    struct digest key;
    uint64_t stamp;
    const char *at;
};
struct job_pins {
    const struct digest *file;
    size_t nfiles;
    const struct pins_laid *laid;
    size_t nlaid;
};
MUST_USE int pins_write(const struct local_cache *s, const char *job, const struct job_pins *p,
                        struct err *e);
/* Removes folder, record and refusal; a missing one is fine. */
MUST_USE int pins_drop(struct local_cache *s, const char *job, struct err *e);
/* What jobs pin, sorted; free() it. An invalid record is skipped and reported. */
MUST_USE int pins_all(const struct local_cache *s, struct digest **out, size_t *n, struct err *e);
/* Of the lock (local_cache_try_lock(), exclusive) that is held to write or drop a job's pins;
 * local_cache_retire() it after dropping them. */
void pins_lock_key(const char *job, struct digest *out);
/* Drops those that are not locked, were written before `before_unix_s` and are not alive(). */
MUST_USE int pins_sweep(struct local_cache *s, uint64_t before_unix_s,
                        bool (*alive)(void *arg, const char *job), void *arg, size_t *dropped,
                        struct err *e);

#endif
