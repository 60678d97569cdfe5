/* pins.h - what a job of this node uses: its record pins files of the local cache against gc, its
 * folder holds them under their names.
 *
 *   jobs/<job>.json   {"job": "42", "at": <unix_s>, "files": ["<sha256>", ...], "laid": [{"key", "stamp", "at"}, ...]}; there before the
 *                     folder is, gone after it. What is "laid" (spare.h) is kept for the next job that wants it
 *   jobs/<job>/       hard links or copies; MIRROR_STAGED of the job
 *   jobs/<job>.refused   why it has no files, where that could not be said on its ticket (agent/slurm/staging.h)
 *
 * The record comes whole or not at all. Whatever instant its maker is killed at, what is left is a
 * record, a folder with some files, or both, and pins_drop() or pins_sweep() takes them away.
 *
 * threads  any; blocks
 * errors   E_INVALID: no job's name
 */
#ifndef AGENT_CACHE_PINS_H
#define AGENT_CACHE_PINS_H

#include "agent/cache/cache.h"

enum { PINS_JOB_MAX = 20 };

/* 1 to 20 digits. */
bool pins_job_ok(const char *job);
/* Where its refusal is; `shelf` is a folder. */
void pins_refusal(const char *cache, const char *job, char out[PATH_MAX]);
/* The job's folder. */
void pins_folder(const struct local_cache *s, const char *job, char out[PATH_MAX]);
struct pins_laid { /* a folder of links below the job's, and what it is a spare of */
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
/* Folder, record and refusal; absent is fine. */
MUST_USE int pins_drop(struct local_cache *s, const char *job, struct err *e);
/* What jobs pin, sorted; free() it. A record that is none is passed over, and told. */
MUST_USE int pins_all(const struct local_cache *s, struct digest **out, size_t *n, struct err *e);
/* Of the lock (local_cache_try_lock(), alone) that whoever writes or drops a job's pins holds;
 * local_cache_retire() it when they are dropped. */
void pins_lock_key(const char *job, struct digest *out);
/* Drops those that nobody has locked, that were written before `before_unix_s` and are not
 * alive(). */
MUST_USE int pins_sweep(struct local_cache *s, uint64_t before_unix_s,
                        bool (*alive)(void *arg, const char *job), void *arg, size_t *dropped,
                        struct err *e);

#endif
