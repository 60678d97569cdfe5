#include "agent/cache/extract.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/cache/confine.h"
#include "agent/cache/place.h"
#include "common/os/forked.h"

enum { ENTRIES_MAX = 1000000, RATIO_MAX = 100, BLOCK_BYTES = 1 << 20 };
#define UNPACKED_MAX    ((uint64_t)4 << 40)
#define UNPACKED_ALWAYS ((uint64_t)64 << 20) /* whatever the ratio */

/* Of the disk so much is left free, a twentieth of it at most. */
#define RESERVE_BYTES ((uint64_t)10 << 30)
enum { RESERVE_SHARE = 20, ENTRY_BYTES = 4096 /* of an entry, beside what is in it */ };

/* In addition to what the process had: libraries' windows, up to the widest that zstd opens
 * without an option. */
#define MEMORY_BYTES    ((uint64_t)1 << 30)
#define SANITIZED_BYTES ((uint64_t)1 << 40) /* only a sanitizer's shadow is so large */
enum { CPU_S = 600, CPU_S_A_MIB = 5 };

struct extraction {
    struct archive *in;
    struct archive *out;
    uint64_t may_bytes;
    uint64_t bytes;
    uint64_t entries;
    int folder;
    uint64_t may_fill;  /* bytes before the disk is looked at again */
    uint64_t may_enter; /* entries, likewise */
};

/* --- the disk: in the child ------------------------------------------------------------------- */

static int say_full(uint64_t free_bytes, uint64_t free_inodes, struct err *e)
{
    return err_set(
        e, E_NOSPACE,
        "the disk of the local cache is full: %" PRIu64 " MB and %" PRIu64
        " inodes are free, and 5 %% is kept free; run \"trainagent gc\" or use a larger disk",
        free_bytes >> 20, free_inodes);
}

/* Others write to it, too, and a sparse or packed file takes less than its length: it is asked
 * again and again, whenever a quarter of what there was is used. inodes: 0 of a file system that
 * does not count them. */
static int look_at_disk(struct extraction *u, uint64_t bytes, struct err *e)
{
    struct statvfs fs;
    uint64_t all, reserve, free_bytes, free_inodes;

    if (fstatvfs(u->folder, &fs) == -1) {
        return err_sys(e, "statvfs");
    }
    all = (uint64_t)fs.f_blocks * fs.f_frsize;
    reserve = min_u64(all / RESERVE_SHARE, RESERVE_BYTES);
    free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    free_inodes = fs.f_files != 0 ? fs.f_favail : UINT32_MAX;
    if (free_bytes <= reserve || free_bytes - reserve < bytes ||
        free_inodes <= fs.f_files / RESERVE_SHARE) {
        return say_full(free_bytes, free_inodes, e);
    }
    u->may_fill = max_u64((free_bytes - reserve) / 4, bytes);
    u->may_enter = (free_inodes - fs.f_files / RESERVE_SHARE + 3) / 4;
    return 0;
}

/* So many bytes of a file more; 0: an entry more. */
static int use_disk(struct extraction *u, uint64_t bytes, struct err *e)
{
    uint64_t takes = bytes != 0 ? bytes : ENTRY_BYTES;
    int rc = 0;

    if (takes > u->may_fill || u->may_enter == 0) {
        rc = look_at_disk(u, takes, e);
    }
    if (rc == 0) {
        u->may_fill -= takes;
        u->may_enter -= bytes == 0;
    }
    return rc;
}

/* --- one entry: in the child ------------------------------------------------------------------ */

static struct slice plain_member_name(const char *name)
{
    struct slice s = slice_str(name);

    while (slice_starts(s, SLICE("./"))) {
        s = slice_from(s, 2);
        while (s.n > 0 && s.p[0] == '/') {
            s = slice_from(s, 1);
        }
    }
    while (s.n > 0 && s.p[s.n - 1] == '/') {
        s.n--;
    }
    return slice_eq(s, SLICE(".")) ? SLICE_NONE : s;
}

/* Does the link at `name` to `target` stay inside? Counted in folders, and '..' only where it
 * begins: behind a name it would mean the parent of wherever that name leads, which may be another
 * link. */
static bool link_ok(struct slice name, struct slice target)
{
    size_t above = 0;
    bool named = false;

    if (target.n == 0 || target.p[0] == '/') {
        return false;
    }
    for (size_t i = 0; i < name.n; i++) {
        above += name.p[i] == '/';
    }
    while (target.n > 0) {
        struct slice seg = slice_cut(&target, '/');
        if (slice_eq(seg, SLICE(".."))) {
            if (named || above == 0) {
                return false;
            }
            above--;
        } else if (seg.n > 0 && !slice_eq(seg, SLICE("."))) {
            named = true;
        }
    }
    return true;
}

/* A hard link may be one to a symbolic link, which then stands, and points, elsewhere. */
static bool hard_link_ok(struct slice name, struct slice to)
{
    char path[PATH_MAX];
    char target[PATH_MAX];
    ssize_t n;

    if (!local_cache_name_ok(to) || to.n >= sizeof path) {
        return false;
    }
    memcpy(path, to.p, to.n);
    path[to.n] = '\0';
    n = readlink(path, target, sizeof target);
    return n == -1 || ((size_t)n < sizeof target && link_ok(name, slice_of(target, (size_t)n)));
}

static int judge_entry(struct archive_entry *entry, struct slice name, struct err *e)
{
    const char *hard = archive_entry_hardlink(entry);
    const char *soft = archive_entry_symlink(entry);

    if (!local_cache_name_ok(name)) {
        return err_set(e, E_INVALID, "the name of an entry points outside the folder");
    }
    if (hard != NULL) {
        return hard_link_ok(name, plain_member_name(hard))
                   ? 0
                   : err_set(e, E_INVALID, "a hard link points outside the folder");
    }
    switch (archive_entry_filetype(entry)) {
    case AE_IFREG:
        archive_entry_set_perm(entry, (archive_entry_perm(entry) & 0111) != 0 ? 0555 : 0444);
        return 0;
    case AE_IFDIR:
        archive_entry_set_perm(entry, 0755); /* until all is there: stamp_seal() */
        return 0;
    case AE_IFLNK:
        return soft != NULL && link_ok(name, slice_str(soft))
                   ? 0
                   : err_set(e, E_INVALID, "a symbolic link points outside the folder");
    default:
        return err_set(e, E_INVALID, "an entry is neither a file, a folder nor a link");
    }
}

static int say_too_much(const struct extraction *u, struct err *e)
{
    return err_set(
        e, E_TOOBIG,
        "the archive unpacks to more than %" PRIu64
        " bytes, %d times its size; if that is correct, pull it without unpack and unpack it in "
        "the job",
        u->may_bytes, RATIO_MAX);
}

static int copy_data(struct extraction *u, struct err *e)
{
    const void *p;
    size_t n;
    la_int64_t at;
    uint64_t end = 0, last; /* holes count: a sparse petabyte is one, too */

    for (;;) {
        int got = archive_read_data_block(u->in, &p, &n, &at);
        if (got == ARCHIVE_EOF) {
            u->bytes += end;
            return 0;
        }
        if (got != ARCHIVE_OK) {
            return err_set(e, E_INVALID, "damaged: %s", archive_error_string(u->in));
        }
        if (at < 0 || !add_u64((uint64_t)at, n, &last) || last > u->may_bytes - u->bytes) {
            return say_too_much(u, e);
        }
        end = max_u64(end, last);
        if (n != 0 && use_disk(u, n, e) != 0) {
            return e->code;
        }
        if (archive_write_data_block(u->out, p, n, at) != ARCHIVE_OK) {
            return err_set(e, archive_errno(u->out) == ENOSPC ? E_NOSPACE : E_IO, "%s",
                           archive_error_string(u->out));
        }
    }
}

static int take_entry(struct extraction *u, struct archive_entry *entry, struct err *e)
{
    const char *raw = archive_entry_pathname(entry);
    struct slice name = plain_member_name(raw != NULL ? raw : "");
    char *text;
    int rc;

    if (name.n == 0 && archive_entry_filetype(entry) == AE_IFDIR) {
        return 0; /* "./" */
    }
    if (++u->entries > ENTRIES_MAX) {
        return err_set(e, E_TOOBIG, "the archive has more than %d entries", ENTRIES_MAX);
    }
    /* What is announced counts: a hole at a file's end comes in no block. */
    if (archive_entry_size(entry) > 0 &&
        (uint64_t)archive_entry_size(entry) > u->may_bytes - u->bytes) {
        return say_too_much(u, e);
    }
    rc = use_disk(u, 0, e);
    if (rc != 0) {
        return rc;
    }
    rc = judge_entry(entry, name, e);
    if (rc != 0) {
        return err_prefix(e, "%.100s", raw != NULL ? raw : "?");
    }
    text = strndup(name.p, name.n);
    CHECK(text != NULL);
    archive_entry_copy_pathname(entry, text);
    if (archive_entry_hardlink(entry) != NULL) {
        struct slice to = plain_member_name(archive_entry_hardlink(entry));
        char *target = strndup(to.p, to.n);
        CHECK(target != NULL);
        archive_entry_copy_hardlink(entry, target);
        free(target);
    }
    if (archive_write_header(u->out, entry) != ARCHIVE_OK) {
        rc = err_set(e, archive_errno(u->out) == ENOSPC ? E_NOSPACE : E_INVALID, "%.100s: %s", text,
                     archive_error_string(u->out));
    } else if (archive_entry_size(entry) > 0 && archive_entry_hardlink(entry) == NULL) {
        rc = copy_data(u, e);
    }
    free(text);
    return rc;
}

static int extract_here(int fd, uint64_t size_bytes, struct err *e)
{
    struct extraction u = {.in = archive_read_new(), .out = archive_write_disk_new()};
    struct archive_entry *entry;
    int rc = 0;
    int got;

    CHECK(u.in != NULL && u.out != NULL);
    u.folder = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (u.folder == -1) {
        rc = err_sys(e, "cannot open the folder to unpack into");
    }
    if (!mul_u64(size_bytes, RATIO_MAX, &u.may_bytes)) {
        u.may_bytes = UNPACKED_MAX;
    }
    u.may_bytes = min_u64(max_u64(u.may_bytes, UNPACKED_ALWAYS), UNPACKED_MAX);
    archive_read_support_format_tar(u.in);
    archive_read_support_format_zip(u.in);
    archive_read_support_format_ar(u.in); /* a Debian package is one */
    archive_read_support_filter_gzip(u.in);
    archive_read_support_filter_bzip2(u.in);
    archive_read_support_filter_xz(u.in);
    archive_read_support_filter_zstd(u.in);
    archive_read_support_filter_lz4(u.in);
    archive_write_disk_set_options(
        u.out, ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_TIME | ARCHIVE_EXTRACT_SECURE_NODOTDOT |
                   ARCHIVE_EXTRACT_SECURE_SYMLINKS | ARCHIVE_EXTRACT_SECURE_NOABSOLUTEPATHS);
    if (rc == 0 && archive_read_open_fd(u.in, fd, BLOCK_BYTES) != ARCHIVE_OK) {
        rc = err_set(e, E_INVALID, "not a tar, zip or ar archive: %s", archive_error_string(u.in));
    }
    while (rc == 0 && (got = archive_read_next_header(u.in, &entry)) != ARCHIVE_EOF) {
        if (got != ARCHIVE_OK && got != ARCHIVE_WARN) {
            rc = err_set(e, E_INVALID, "damaged archive: %s", archive_error_string(u.in));
        } else {
            rc = take_entry(&u, entry, e);
        }
    }
    if (archive_write_close(u.out) != ARCHIVE_OK && rc == 0) {
        rc = err_set(e, E_IO, "%s", archive_error_string(u.out));
    }
    archive_read_free(u.in);
    archive_write_free(u.out);
    if (u.folder != -1) {
        close(u.folder);
    }
    return rc;
}

/* --- the child and its parent ----------------------------------------------------------------- */

static uint64_t mapped_bytes(void)
{
    FILE *f = fopen("/proc/self/statm", "re");
    unsigned long pages = 0;
    bool read = f != NULL && fscanf(f, "%lu", &pages) == 1;

    if (f != NULL) {
        fclose(f);
    }
    return read ? pages * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

static uint64_t cpu_seconds(uint64_t size_bytes)
{
    return CPU_S + (size_bytes >> 20) * CPU_S_A_MIB;
}

/* What a reader that is led in circles may cost: the kernel ends it. */
static void bound(uint64_t size_bytes)
{
    uint64_t mapped = mapped_bytes(), cpu_s = cpu_seconds(size_bytes);
    const struct rlimit cpu = {cpu_s, cpu_s + 5};
    const struct rlimit memory = {mapped + MEMORY_BYTES, mapped + MEMORY_BYTES};

    (void)setrlimit(RLIMIT_CPU, &cpu);
    if (mapped != 0 && mapped < SANITIZED_BYTES) {
        (void)setrlimit(RLIMIT_AS, &memory);
    }
}

/* What the agent had open is none of the archive's. */
static void close_others(int fd, int tell)
{
    unsigned low = (unsigned)(fd < tell ? fd : tell), high = (unsigned)(fd < tell ? tell : fd);

    (void)close_range(STDERR_FILENO + 1, low - 1, 0);
    if (low + 1 < high) {
        (void)close_range(low + 1, high - 1, 0);
    }
    (void)close_range(high + 1, ~0U, 0);
}

NORETURN static void child(int fd, uint64_t size_bytes, const char *folder, int tell)
{
    struct err why = {0};

    if (chdir(folder) == -1) {
        err_sys(&why, "%s", folder);
    } else {
        (void)archive_version_number(); /* loaded (agent/lazy) before we give up our rights */
        tzset();                        /* zip's times are local ones: /etc/localtime */
        bound(size_bytes);
        close_others(fd, tell);
        confine_to(".");
        umask(022);
        (void)extract_here(fd, size_bytes, &why);
    }
    (void)!write(tell, &why, sizeof why);
    _exit(why.code == 0 ? 0 : 1);
}

int extract_in_child(int fd, uint64_t size_bytes, const char *folder, struct err *e)
{
    struct err said = {0};
    int status = 0;
    ssize_t n;
    pid_t pid;
    int pipe_fd;
    int rc = forked_start(&pid, &pipe_fd, e);

    if (rc != 0) {
        return rc;
    }
    if (pid == 0) {
        child(fd, size_bytes, folder, pipe_fd);
    }
    do {
        n = read(pipe_fd, &said, sizeof said);
    } while (n == -1 && errno == EINTR);
    close(pipe_fd);
    while (waitpid(pid, &status, 0) == -1 && errno == EINTR) {
    }
    if (n == (ssize_t)sizeof said && said.code < 0) {
        said.text[sizeof said.text - 1] = '\0';
        return err_set(e, said.code, "%s", said.text);
    }
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU) {
        return err_set(
            e, E_TOOBIG,
            "unpacking the archive took more than %" PRIu64
            " s of processor time; if that is expected, pull it without unpack and unpack it in "
            "the job",
            cpu_seconds(size_bytes));
    }
    if (n != (ssize_t)sizeof said || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        return err_set(e, E_INVALID, "the process that unpacked the archive crashed (signal %d)",
                       WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    }
    return 0;
}
