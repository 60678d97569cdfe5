#include "server/store/space.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/codec/units.h"
#include "common/os/clock.h"
#include "server/store/state.h"

enum { LOOK_MS = 1000, ROWS_MARGIN_BYTES = 64 << 20 };

/* --- the disk --- */

static uint64_t reserve_of(const struct store_settings *set, const struct statvfs *v)
{
    return set->reserve_bytes != 0
               ? set->reserve_bytes
               : (uint64_t)(set->reserve_ratio * (double)v->f_blocks * (double)v->f_frsize);
}

/* Under the lock: one statvfs a second is nothing, and every caller wants its result. */
static void measure_free_space(struct store *s, uint64_t now_ms)
{
    struct space *x = &s->space;
    struct statvfs v;

    if (fstatvfs(s->dir_fd, &v) == -1) {
        return; /* the old numbers stand */
    }
    x->free_bytes = (uint64_t)v.f_bavail * v.f_frsize;
    x->reserve_bytes = reserve_of(&x->set, &v);
    x->recent_bytes = 0;
    x->looked_ms = now_ms;
}

static void look_if_old(struct store *s)
{
    uint64_t now = clock_now_ms();

    if (now - s->space.looked_ms >= LOOK_MS) {
        measure_free_space(s, now);
    }
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a - min_u64(a, b);
}

static uint64_t free_now(const struct space *x)
{
    return less(less(x->free_bytes, x->recent_bytes), x->reserve_bytes);
}

/* What the file system leaves to the store. What strangers took of the reserve is ours to give
 * back. */
static uint64_t disk_now(const struct space *x)
{
    uint64_t free_bytes = less(x->free_bytes, x->recent_bytes);

    return less(x->counts.used_bytes + x->written_bytes + x->parked_bytes + free_bytes,
                x->reserve_bytes);
}

static bool is_by_disk(const struct space *x)
{
    return x->set.quota_bytes == 0 || disk_now(x) < x->set.quota_bytes;
}

static uint64_t quota_now(const struct space *x)
{
    return is_by_disk(x) ? disk_now(x) : x->set.quota_bytes;
}

static struct store_space view_locked(const struct space *x)
{
    uint64_t quota = quota_now(x);

    return (struct store_space){
        .quota_bytes = quota,
        .used_bytes = x->counts.used_bytes,
        .small_bytes = x->counts.small_bytes,
        .staged_bytes = x->staged_bytes,
        .parked_bytes = x->parked_bytes,
        .disk_free_bytes = x->free_bytes,
        .reserve_bytes = x->reserve_bytes,
        .blobs = x->counts.blobs,
        .high_bytes = (uint64_t)(x->set.high_ratio * (double)quota),
        .low_bytes = (uint64_t)(x->set.low_ratio * (double)quota),
        .full = x->full,
        .by_disk = is_by_disk(x),
    };
}

/* --- the ballast --- */

static bool make_ballast(struct store *s, uint64_t bytes)
{
    int fd = openat(s->dir_fd, "ballast", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    bool ok = fd != -1 && posix_fallocate(fd, 0, (off_t)bytes) == 0;

    if (fd != -1) {
        close(fd);
    }
    if (!ok) {
        unlinkat(s->dir_fd, "ballast", 0);
    }
    return ok;
}

void space_init(struct space *x, const struct store_settings *set)
{
    lock_init(&x->lock, LOCK_STORE);
    x->set = *set;
    x->set.state_dir = NULL; /* the caller's memory */
}

int space_open(struct store *s, struct err *e)
{
    struct space *x = &s->space;
    struct statvfs v;
    struct stat st;

    if (fstatvfs(s->dir_fd, &v) == -1) {
        return err_sys(e, "%s: statvfs", s->dir);
    }
    x->ballast_want = (uint64_t)v.f_blocks * v.f_frsize / 128;
    x->ballast_want = max_u64(min_u64(x->ballast_want, (uint64_t)256 << 20), (uint64_t)1 << 20);
    measure_free_space(s, clock_now_ms());
    if (fstatat(s->dir_fd, "ballast", &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_blocks != 0) {
        x->ballast_bytes = (uint64_t)st.st_size;
    } else if (x->free_bytes > 2 * x->ballast_want && make_ballast(s, x->ballast_want)) {
        x->ballast_bytes = x->ballast_want;
        measure_free_space(s, clock_now_ms());
    }
    return 0;
}

void space_fini(struct space *x)
{
    lock_fini(&x->lock);
}

bool space_full(struct store *s)
{
    bool full;

    lock_take(&s->space.lock);
    full = s->space.full;
    lock_drop(&s->space.lock);
    return full;
}

uint64_t space_for_rows(struct store *s, uint64_t *margin_bytes)
{
    struct statvfs v;

    *margin_bytes = 0;
    if (fstatvfs(s->dir_fd, &v) == -1) {
        return UINT64_MAX; /* then the write itself shall say what is wrong */
    }
    *margin_bytes = min_u64((uint64_t)v.f_blocks * v.f_frsize / 32, ROWS_MARGIN_BYTES);
    return (uint64_t)v.f_bavail * v.f_frsize;
}

void space_exhausted(struct store *s)
{
    struct space *x = &s->space;
    uint64_t freed;

    lock_take(&x->lock);
    freed = x->ballast_bytes;
    x->ballast_bytes = 0;
    if (!x->full || freed != 0) {
        unlinkat(s->dir_fd, "ballast", 0);
        log_error("store.full", "dir=%s freed_ballast_bytes=%" PRIu64, s->dir, freed);
    }
    x->full = true;
    measure_free_space(s, clock_now_ms());
    lock_drop(&x->lock);
}

void space_tick(struct store *s)
{
    struct space *x = &s->space;
    bool want;

    lock_take(&x->lock);
    look_if_old(s);
    want = x->ballast_bytes == 0 && x->free_bytes > 3 * x->ballast_want;
    lock_drop(&x->lock);
    if (!want || !make_ballast(s, x->ballast_want)) {
        return;
    }
    lock_take(&x->lock);
    x->ballast_bytes = x->ballast_want;
    if (x->full) {
        log_info("store.room", "dir=%s", s->dir);
    }
    x->full = false;
    measure_free_space(s, clock_now_ms());
    lock_drop(&x->lock);
}

/* --- reservations --- */

/* quota, free_bytes: what is left of each. */
static int say_no_room(const struct space *x, uint64_t bytes, uint64_t quota, uint64_t free_bytes,
                       struct err *e)
{
    struct store_space now = view_locked(x);
    char advice[SPACE_ADVICE];

    if (!x->full && now.disk_free_bytes < now.reserve_bytes) {
        return err_set(e, E_NOSPACE, "%" PRIu64 " bytes do not fit: %s", bytes,
                       store_space_advice(&now, advice));
    }
    return err_set(e, E_NOSPACE,
                   "%" PRIu64 " bytes do not fit: %" PRIu64 " are left of the quota, %" PRIu64
                   " on the disk%s",
                   bytes, quota, free_bytes, x->full ? " (it was full)" : "");
}

static int reserve_locked(struct store *s, uint64_t bytes, struct err *e)
{
    struct space *x = &s->space;
    uint64_t quota, free_bytes;

    look_if_old(s);
    quota = less(quota_now(x), x->counts.used_bytes + x->staged_bytes + x->parked_bytes);
    free_bytes = less(free_now(x), less(x->staged_bytes, x->written_bytes));
    if (x->full || bytes > quota || bytes > free_bytes) {
        return say_no_room(x, bytes, quota, free_bytes, e);
    }
    x->staged_bytes += bytes;
    return 0;
}

int space_reserve(struct store *s, uint64_t bytes, struct err *e)
{
    int rc;

    lock_take(&s->space.lock);
    rc = reserve_locked(s, bytes, e);
    lock_drop(&s->space.lock);
    return rc;
}

int space_adopt(struct store *s, uint64_t have, uint64_t more, struct err *e)
{
    struct space *x = &s->space;
    int rc;

    lock_take(&x->lock);
    x->staged_bytes += have;
    x->written_bytes += have;
    rc = reserve_locked(s, more, e);
    if (rc != 0) {
        x->staged_bytes -= have;
        x->written_bytes -= have;
    }
    lock_drop(&x->lock);
    return rc;
}

int space_write(struct store *s, uint64_t *reserved, uint64_t *written, uint64_t n, struct err *e)
{
    struct space *x = &s->space;
    uint64_t left;
    int rc = 0;

    lock_take(&x->lock);
    left = *reserved - *written;
    if (n > left) {
        rc = reserve_locked(s, n - left, e);
        *reserved += rc == 0 ? n - left : 0;
    }
    if (rc == 0) {
        *written += n;
        x->written_bytes += n;
        x->recent_bytes += n;
    }
    lock_drop(&x->lock);
    return rc;
}

void space_release(struct store *s, uint64_t reserved, uint64_t written)
{
    struct space *x = &s->space;

    lock_take(&x->lock);
    CHECK(x->staged_bytes >= reserved && x->written_bytes >= written);
    x->staged_bytes -= reserved;
    x->written_bytes -= written;
    lock_drop(&x->lock);
}

void space_freed(struct store *s)
{
    lock_take(&s->space.lock);
    measure_free_space(s, clock_now_ms());
    lock_drop(&s->space.lock);
}

void space_counted(struct store *s, const struct counts *c)
{
    lock_take(&s->space.lock);
    s->space.counts = *c;
    lock_drop(&s->space.lock);
}

void store_set_space(struct store *s, const struct store_settings *set)
{
    struct space *x = &s->space;

    lock_take(&x->lock);
    x->set.quota_bytes = set->quota_bytes;
    x->set.reserve_bytes = set->reserve_bytes;
    x->set.reserve_ratio = set->reserve_ratio;
    x->set.high_ratio = set->high_ratio;
    x->set.low_ratio = set->low_ratio;
    measure_free_space(s, clock_now_ms()); /* the reserve, at once */
    lock_drop(&x->lock);
}

void store_space(struct store *s, struct store_space *out)
{
    struct space *x = &s->space;

    lock_take(&x->lock);
    look_if_old(s);
    *out = view_locked(x);
    lock_drop(&x->lock);
}

/* "has 3.2 GiB free and storage.reserve keeps 5.0 GiB free; ..." */
static void say_reserve(uint64_t free_bytes, uint64_t reserve_bytes, char *out, size_t room)
{
    char unused[UNITS_TEXT], reserve[UNITS_TEXT];

    size_format(free_bytes, unused);
    size_format(reserve_bytes, reserve);
    snprintf(out, room,
             "has %s free and storage.reserve keeps %s free; free space there, or lower "
             "storage.reserve",
             unused, reserve);
}

const char *store_space_advice(const struct store_space *space, char out[SPACE_ADVICE])
{
    static const char whose[] = "the file system of the store ";
    size_t n = sizeof whose - 1;

    if (!space->by_disk) {
        snprintf(out, SPACE_ADVICE, "raise storage.quota");
        return out;
    }
    memcpy(out, whose, n);
    say_reserve(space->disk_free_bytes, space->reserve_bytes, out + n, SPACE_ADVICE - n);
    return out;
}

/* Of the folder, or of the nearest one above it that exists. */
static int file_system_of(const char *dir, struct statvfs *out)
{
    char *path = mem_strdup(dir), *slash = NULL;
    int rc;

    while ((rc = statvfs(path, out)) == -1 && errno == ENOENT &&
           (slash = strrchr(path, '/')) != NULL && slash != path) {
        *slash = '\0';
    }
    if (rc == -1 && errno == ENOENT) {
        rc = statvfs(slash == path ? "/" : ".", out);
    }
    free(path);
    return rc;
}

bool store_warn_of_reserve(const struct store_settings *set, struct buf *out)
{
    char advice[SPACE_ADVICE];
    struct statvfs v;
    uint64_t free_bytes;

    if (file_system_of(set->state_dir, &v) == -1) {
        return false; /* what opens the folder says why */
    }
    free_bytes = (uint64_t)v.f_bavail * v.f_frsize;
    if (free_bytes >= reserve_of(set, &v)) {
        return false;
    }
    say_reserve(free_bytes, reserve_of(set, &v), advice, sizeof advice);
    buf_addf(out, "nothing new can be stored: the file system of %s %s", set->state_dir, advice);
    return true;
}
