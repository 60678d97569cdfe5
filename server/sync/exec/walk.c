#include "server/sync/exec/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/list.h"
#include "server/store/tree.h"

/* rsync --munge-links puts it before every target: so nothing can be written through a link,
 * whoever sends. */
#define MUNGED "/rsyncd-munged/"

struct folder { /* still to be read */
    struct list node;
    char path[]; /* "": the top */
};

struct twin { /* a file with more than one name */
    dev_t dev;
    ino_t ino;
    uint32_t arrival;
};

struct walk {
    const struct walk_params *want;
    struct file_list *list;
    struct list folders;
    struct twin *twin;
    size_t twins, twins_room;
    uint64_t left_out;
    char path[LIST_PATH_MAX + 1]; /* of the entry that is looked at */
    char target[LIST_PATH_MAX + 1];
};

int walk_open(int top, const char *path, int flags)
{
    char part[NAME_MAX + 1];
    struct slice rest = slice_str(path);
    int at = top;

    while (rest.n > 0) {
        struct slice one = slice_cut(&rest, '/');
        int how = rest.n > 0 ? O_PATH | O_DIRECTORY : flags;
        int next, failed;
        if (one.n > NAME_MAX) {
            errno = ENAMETOOLONG;
            next = -1;
        } else {
            memcpy(part, one.p, one.n);
            part[one.n] = '\0';
            next = openat(at, part, how | O_NOFOLLOW | O_CLOEXEC);
        }
        failed = errno;
        if (at != top) {
            close(at);
        }
        errno = failed;
        if (next == -1) {
            return -1;
        }
        at = next;
    }
    return at != top ? at : openat(top, ".", flags | O_NOFOLLOW | O_CLOEXEC);
}

static void push_walk_path(struct walk *w, const char *path)
{
    size_t n = strlen(path) + 1;
    struct folder *f = mem_new(sizeof *f + n);

    memcpy(f->path, path, n);
    list_push_back(&w->folders, &f->node);
}

static void note_twin(struct walk *w, const struct stat *st)
{
    if (w->twins == w->twins_room) {
        size_t room = w->twins_room != 0 ? 2 * w->twins_room : 256;
        struct twin *more = mem_array(room, sizeof *more);
        if (w->twins != 0) {
            memcpy(more, w->twin, w->twins * sizeof *more);
        }
        free(w->twin);
        w->twin = more;
        w->twins_room = room;
    }
    w->twin[w->twins++] = (struct twin){st->st_dev, st->st_ino, list_count(w->list)};
}

static int read_target(struct walk *w, int folder, const char *name, struct slice *target,
                       struct err *e)
{
    ssize_t n = readlinkat(folder, name, w->target, sizeof w->target);

    if (n < 0) {
        return err_sys(e, "cannot read %.100s in the working tree", w->path);
    }
    *target = slice_of(w->target, (size_t)n);
    if (slice_starts(*target, SLICE(MUNGED))) {
        *target = slice_from(*target, sizeof MUNGED - 1);
    }
    return 0;
}

static bool is_kind(mode_t mode)
{
    return S_ISREG(mode) || S_ISDIR(mode) || S_ISLNK(mode);
}

static int walk_exec_file(struct walk *w, int folder, const char *name, struct err *e)
{
    struct slice target = SLICE("");
    struct stat st;
    int64_t mtime_ns;
    int rc = 0;

    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == -1) {
        return err_sys(e, "cannot read %.100s in the working tree", w->path);
    }
    if (said_passed(w->want->said, w->path)) {
        return 0; /* what lies there is what it was before */
    }
    if (!is_kind(st.st_mode) || !tree_path_valid(slice_str(w->path))) {
        w->left_out++;
        return 0;
    }
    if (S_ISLNK(st.st_mode)) {
        rc = read_target(w, folder, name, &target, e);
    }
    if (!S_ISDIR(st.st_mode) && st.st_nlink > 1) {
        note_twin(w, &st);
    }
    if (S_ISDIR(st.st_mode)) {
        push_walk_path(w, w->path);
    }
    if (__builtin_mul_overflow((int64_t)st.st_mtim.tv_sec, 1000000000, &mtime_ns)) {
        mtime_ns = st.st_mtim.tv_sec < 0 ? INT64_MIN + 1 : INT64_MAX - 1000000000;
    }
    mtime_ns += st.st_mtim.tv_nsec;
    if (rc != 0) {
        return rc;
    }
    return list_add(w->list, slice_str(w->path), st.st_mode,
                    S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0, mtime_ns, target, e);
}

static int read_folder(struct walk *w, const char *path, struct err *e)
{
    int fd = walk_open(w->want->top, path, O_RDONLY | O_DIRECTORY);
    DIR *d = fd != -1 ? fdopendir(fd) : NULL;
    size_t n = strlen(path), room = sizeof w->path;
    const struct dirent *en;
    int rc = 0;

    if (d == NULL) {
        rc = err_sys(e, "cannot read %.100s in the working tree", path);
        if (fd != -1) {
            close(fd);
        }
        return rc;
    }
    memcpy(w->path, path, n);
    if (n != 0) {
        w->path[n++] = '/';
    }
    while (rc == 0 && (errno = 0, en = readdir(d)) != NULL) { // NOLINT(concurrency-mt-unsafe)
        size_t name = strlen(en->d_name);
        if (strcmp(en->d_name, ".") == 0 || strcmp(en->d_name, "..") == 0) {
            continue;
        }
        if (name >= room - n) {
            w->left_out++;
            continue;
        }
        memcpy(w->path + n, en->d_name, name + 1);
        rc = walk_exec_file(w, fd, en->d_name, e);
        if (rc == 0 && atomic_load(w->want->stop)) {
            rc = err_set(e, E_CANCELLED, "stopped");
        }
    }
    if (rc == 0 && errno != 0) {
        rc = err_sys(e, "cannot read %.100s in the working tree", path);
    }
    closedir(d);
    return rc;
}

/* --- hard links: of each group the first in the order of the list leads --- */

static int compare_twins(const void *x, const void *y, void *arg)
{
    const struct twin *a = x, *b = y;
    const struct file_list *l = arg;
    char p[LIST_PATH_MAX + 1], q[LIST_PATH_MAX + 1];

    if (a->dev != b->dev) {
        return a->dev < b->dev ? -1 : 1;
    }
    if (a->ino != b->ino) {
        return a->ino < b->ino ? -1 : 1;
    }
    return list_compare(list_path(l, list_at(l, a->arrival), p), false,
                        list_path(l, list_at(l, b->arrival), q), false);
}

static void set_leaders(struct walk *w)
{
    const struct twin *first = NULL;

    if (w->twins == 0) {
        return;
    }
    qsort_r(w->twin, w->twins, sizeof *w->twin, compare_twins, w->list);
    for (size_t i = 0; i < w->twins; i++) {
        const struct twin *t = &w->twin[i];
        if (first != NULL && first->dev == t->dev && first->ino == t->ino) {
            list_set_leader(w->list, t->arrival, first->arrival);
        } else {
            first = t;
        }
    }
}

int walk_tree(const struct walk_params *want, struct file_list **out, uint64_t *left_out,
              struct err *e)
{
    struct walk *w = NEW(struct walk);
    struct list *n;
    int rc = 0;

    w->want = want;
    w->list = list_new((struct list_form){.hard_links = true}, want->limits);
    list_init(&w->folders);
    push_walk_path(w, "");
    while ((n = list_pop_front(&w->folders)) != NULL) {
        struct folder *f = LIST_ITEM(n, struct folder, node);
        rc = rc != 0 ? rc : read_folder(w, f->path, e);
        free(f);
    }
    if (rc == 0) {
        set_leaders(w);
        rc = list_sort(w->list, e);
    }
    *left_out = w->left_out;
    *out = rc == 0 ? w->list : NULL;
    if (rc != 0) {
        list_free(&w->list);
    }
    free(w->twin);
    free(w);
    return rc;
}
