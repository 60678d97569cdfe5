#include "agent/cache/pins.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/cache/place.h"
#include "agent/cache/spare.h"
#include "common/base/log.h"
#include "common/codec/jread.h"
#include "common/codec/jwrite.h"
#include "common/os/clock.h"
#include "common/os/newfile.h"

#define TORN ".new~" /* behind the name of a record that is being written */

enum { RECORD_MAX = 1 << 30 }; /* of some ten million files */

bool pins_job_ok(const char *job)
{
    size_t n = strspn(job, "0123456789");

    return n > 0 && n <= PINS_JOB_MAX && job[n] == '\0';
}

static void folder_of_jobs(const struct local_cache *s, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%s/jobs", local_cache_dir(s));
}

void pins_folder(const struct local_cache *s, const char *job, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%s/jobs/%s", local_cache_dir(s), job);
}

void pins_refusal(const char *cache, const char *job, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%.4000s/jobs/%.40s.refused", cache, job);
}

static void record_path(const struct local_cache *s, const char *job, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%s/jobs/%s.json", local_cache_dir(s), job);
}

static void format(const char *job, const struct job_pins *p, struct buf *out)
{
    char stamp[17];

    jwrite_open(out, NULL, '{');
    jwrite_str(out, "job", job);
    jwrite_u64(out, "at", clock_unix_s());
    jwrite_open(out, "files", '[');
    for (size_t i = 0; i < p->nfiles; i++) {
        jwrite_hex(out, NULL, p->file[i].b, DIGEST_BYTES);
    }
    jwrite_close(out, ']');
    jwrite_open(out, "laid", '[');
    for (size_t i = 0; i < p->nlaid; i++) {
        snprintf(stamp, sizeof stamp, "%016" PRIx64, p->laid[i].stamp);
        jwrite_open(out, NULL, '{');
        jwrite_hex(out, "key", p->laid[i].key.b, DIGEST_BYTES);
        jwrite_str(out, "stamp", stamp);
        jwrite_str(out, "at", p->laid[i].at);
        jwrite_close(out, '}');
    }
    jwrite_close(out, ']');
    jwrite_close(out, '}');
    buf_byte(out, '\n');
}

/* Whole, but not durable: after a power cut there is no such job. */
static int write_whole(const char *path, struct slice text, struct err *e)
{
    char temp[PATH_MAX];
    int fd;
    int rc;

    snprintf(temp, sizeof temp, "%.4080s" TORN, path);
    fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    rc = fd == -1 ? err_sys(e, "%s", temp) : fd_write_all(fd, text.p, text.n, e);
    if (rc == 0 && rename(temp, path) == -1) {
        rc = err_sys(e, "%s", path);
    }
    if (fd != -1) {
        close(fd);
    }
    if (rc != 0) {
        unlink(temp);
    }
    return rc;
}

int pins_write(const struct local_cache *s, const char *job, const struct job_pins *p,
               struct err *e)
{
    struct buf text = BUF_INIT(RECORD_MAX);
    char path[PATH_MAX];
    int rc;

    if (!pins_job_ok(job)) {
        return err_set(e, E_INVALID, "%.40s: not a job number", job);
    }
    folder_of_jobs(s, path);
    rc = dir_make(path, 0755, e);
    format(job, p, &text);
    if (rc == 0 && text.rc != 0) {
        rc = err_set(e, text.rc, "%s/%s.json: the job uses too many files for its record", path,
                     job);
    }
    record_path(s, job, path);
    rc = rc != 0 ? rc : write_whole(path, buf_slice(&text), e);
    buf_free(&text);
    return rc;
}

void pins_lock_key(const char *job, struct digest *out)
{
    char name[64];

    snprintf(name, sizeof name, "job %.40s", job);
    digest_of(slice_str(name), out);
}

/* What of the folder another job may want as it is. */
static void hand_on(struct local_cache *s, const char *job)
{
    char path[PATH_MAX];
    json_t *o;
    const json_t *laid;

    record_path(s, job, path);
    o = json_load_file(path, 0, NULL);
    laid = json_object_get(o, "laid");
    for (size_t i = 0; i < json_array_size(laid); i++) {
        const json_t *one = json_array_get(laid, i);
        struct slice stamp = jread_text(one, "stamp");
        struct slice at = jread_text(one, "at");
        struct digest key;

        if (stamp.n == 16 && digest_parse(jread_text(one, "key"), &key) &&
            local_cache_name_ok(at)) {
            snprintf(path, sizeof path, "%s/jobs/%s/" SLICE_FMT, local_cache_dir(s), job,
                     SLICE_ARG(at));
            spare_give(s, &key, strtoull(stamp.p, NULL, 16), job, path);
        }
    }
    json_decref(o);
}

int pins_drop(struct local_cache *s, const char *job, struct err *e)
{
    char path[PATH_MAX];
    char torn[PATH_MAX];
    int rc;

    if (!pins_job_ok(job)) {
        return err_set(e, E_INVALID, "%.40s: not a job number", job);
    }
    hand_on(s, job);
    pins_folder(s, job, path);
    rc = dir_remove_tree(path, e);
    record_path(s, job, path);
    if (rc == 0 && unlink(path) == -1 && errno != ENOENT) {
        rc = err_sys(e, "%s", path);
    }
    snprintf(torn, sizeof torn, "%.4080s" TORN, path);
    unlink(torn);
    pins_refusal(local_cache_dir(s), job, path);
    unlink(path);
    return rc;
}

/* --- all of them ------------------------------------------------------------------------------ */

/* "42" of "42.json", "42", "42.refused" or "42.json.new~"; false: none of a job's. */
static bool job_of(const char *name, char job[PINS_JOB_MAX + 1], bool *is_record)
{
    size_t n = strspn(name, "0123456789");

    *is_record = strcmp(name + n, ".json") == 0;
    if (n == 0 || n > PINS_JOB_MAX ||
        (name[n] != '\0' && strncmp(name + n, ".json", 5) != 0 &&
         strcmp(name + n, ".refused") != 0)) {
        return false;
    }
    memcpy(job, name, n);
    job[n] = '\0';
    return true;
}

struct digests {
    struct digest *at;
    size_t n, room;
};

static void add_pinned_digest(struct digests *all, const struct digest *d)
{
    if (all->n == all->room) {
        all->room = all->room != 0 ? 2 * all->room : 256;
        all->at = reallocarray(all->at, all->room, sizeof all->at[0]);
        CHECK(all->at != NULL);
    }
    all->at[all->n++] = *d;
}

static void read_record(const struct local_cache *s, const char *job, struct digests *all)
{
    char path[PATH_MAX];
    json_t *o;
    const json_t *files;
    struct digest d;

    record_path(s, job, path);
    o = json_load_file(path, 0, NULL);
    files = json_object_get(o, "files");
    if (!json_is_array(files) && access(path, F_OK) == 0) {
        log_warn("local_cache.pins",
                 "path=%s not a valid record; files that this job uses may be removed", path);
    }
    for (size_t i = 0; i < json_array_size(files); i++) {
        if (digest_parse(slice_str(json_string_value(json_array_get(files, i))), &d)) {
            add_pinned_digest(all, &d);
        }
    }
    json_decref(o);
}

static int compare_pin_digests(const void *a, const void *b)
{
    return memcmp(a, b, DIGEST_BYTES);
}

/* NULL: there have been no jobs. */
static int open_jobs(const struct local_cache *s, DIR **out, struct err *e)
{
    char path[PATH_MAX];

    folder_of_jobs(s, path);
    *out = opendir(path);
    return *out == NULL && errno != ENOENT ? err_sys(e, "%s", path) : 0;
}

int pins_all(const struct local_cache *s, struct digest **out, size_t *n, struct err *e)
{
    struct digests all = {0};
    char job[PINS_JOB_MAX + 1];
    const struct dirent *it;
    bool is_record;
    DIR *d;
    int rc = open_jobs(s, &d, e);

    while (d != NULL && (it = readdir(d)) != NULL) {
        if (job_of(it->d_name, job, &is_record) && is_record) {
            read_record(s, job, &all);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    if (all.n > 0) {
        qsort(all.at, all.n, sizeof all.at[0], compare_pin_digests);
    }
    *out = all.at;
    *n = all.n;
    return rc;
}

/* Somebody who has its lock lays it out, or takes it away himself. */
static int sweep_one(struct local_cache *s, const char *job, struct err *e)
{
    struct local_cache_lock *lock = NULL;
    struct digest key;
    int rc;

    pins_lock_key(job, &key);
    rc = local_cache_try_lock(s, &key, false, &lock, e);
    rc = rc != 0 ? rc : pins_drop(s, job, e);
    if (rc == 0) {
        local_cache_retire(s, &key, &lock);
    }
    local_cache_unlock(&lock);
    return rc;
}

int pins_sweep(struct local_cache *s, uint64_t before_unix_s,
               bool (*alive)(void *arg, const char *job), void *arg, size_t *dropped, struct err *e)
{
    char job[PINS_JOB_MAX + 1];
    const struct dirent *it;
    struct stat st;
    bool is_record;
    DIR *d;
    int rc = open_jobs(s, &d, e);

    *dropped = 0;
    while (rc == 0 && d != NULL && (it = readdir(d)) != NULL) {
        if (job_of(it->d_name, job, &is_record) &&
            fstatat(dirfd(d), it->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            (uint64_t)st.st_mtim.tv_sec < before_unix_s && !alive(arg, job)) {
            rc = sweep_one(s, job, e);
            *dropped += rc == 0 && is_record;
            rc = rc == E_BUSY ? 0 : rc;
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    return rc;
}
