#include "server/sync/debian/packages.h"

#include <stdlib.h>

#include "server/store/tree.h"

enum { PATH_ROOM = 4096, FILES_A_SOURCE = 4096 };

struct named { /* of a source */
    struct digest digest;
    uint64_t size_bytes;
    size_t at, n; /* its name, in text */
};

struct packages {
    struct deb822 reader;
    struct packages_events ev;
    bool sources;
    /* the stanza at hand */
    struct buf path; /* Filename, or Directory */
    bool sized, summed;
    uint64_t size_bytes;
    struct digest digest;
    struct named *file;
    size_t count, room;
    struct buf text;
};

static int add_source_file(struct packages *p, struct slice line, struct err *e)
{
    struct slice hex = line, size, name;
    struct named f;

    hex = slice_cut(&line, ' ');
    line = slice_trim(line);
    size = slice_cut(&line, ' ');
    name = slice_trim(line);
    if (!digest_parse(hex, &f.digest) || !slice_u64(size, &f.size_bytes) ||
        !tree_path_valid(name) || slice_find(name, '/') >= 0 || p->count == FILES_A_SOURCE) {
        return err_set(e, E_INVALID, "Sources has an invalid line in its list of checksums");
    }
    if (p->count == p->room) {
        p->room = p->room != 0 ? 2 * p->room : 16;
        p->file = realloc(p->file, p->room * sizeof p->file[0]);
        CHECK(p->file != NULL);
    }
    f.at = p->text.n;
    f.n = name.n;
    buf_adds(&p->text, name);
    p->file[p->count++] = f;
    return 0;
}

static int on_packages_field(void *arg, struct slice field, bool first, struct slice value,
                             struct err *e)
{
    struct packages *p = arg;

    if (p->sources && slice_ieq(field, SLICE("checksums-sha256"))) {
        return value.n != 0 ? add_source_file(p, value, e) : 0;
    }
    if (!first) {
        return 0;
    }
    if (slice_ieq(field, p->sources ? SLICE("directory") : SLICE("filename"))) {
        if (slice_starts(value, SLICE("./"))) {
            value = slice_from(value, 2);
        }
        buf_clear(&p->path);
        buf_adds(&p->path, value);
    } else if (!p->sources && slice_ieq(field, SLICE("size"))) {
        p->sized = slice_u64(value, &p->size_bytes);
    } else if (!p->sources && slice_ieq(field, SLICE("sha256"))) {
        p->summed = digest_parse(value, &p->digest);
    }
    return 0;
}

static int end_package(struct packages *p, struct err *e)
{
    if (p->path.n == 0) {
        return 0;
    }
    if (!p->sized || !p->summed || p->path.rc != 0 || !tree_path_valid(buf_slice(&p->path))) {
        return err_set(e, E_INVALID,
                       "Packages lists a file without a size or SHA256, or with an invalid path");
    }
    return p->ev.on_file(p->ev.arg, buf_slice(&p->path), p->size_bytes, &p->digest, e);
}

static int end_source(struct packages *p, struct err *e)
{
    size_t folder = p->path.n;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < p->count; i++) {
        p->path.n = folder;
        if (folder != 0) {
            buf_byte(&p->path, '/');
        }
        buf_add(&p->path, p->text.p + p->file[i].at, p->file[i].n);
        if (p->path.rc != 0 || !tree_path_valid(buf_slice(&p->path))) {
            return err_set(e, E_INVALID, "Sources lists a file with an invalid path");
        }
        rc = p->ev.on_file(p->ev.arg, buf_slice(&p->path), p->file[i].size_bytes,
                           &p->file[i].digest, e);
    }
    return rc;
}

static int on_packages_stanza_end(void *arg, struct err *e)
{
    struct packages *p = arg;
    int rc = p->sources ? end_source(p, e) : end_package(p, e);

    buf_clear(&p->path);
    buf_clear(&p->text);
    p->count = 0;
    p->sized = p->summed = false;
    return rc;
}

const struct packages_form packages_form[PACKAGES_FORMS] = {{".gz", PACKING_GZIP},
                                                            {".xz", PACKING_XZ},
                                                            {".zst", PACKING_ZSTD},
                                                            {".bz2", PACKING_BZIP2},
                                                            {"", PACKING_NONE}};

bool packages_named(struct slice path, struct slice *bare, bool *sources)
{
    struct slice name;

    (void)packing_of(path, bare);
    name = slice_from(*bare, slice_behind(*bare, '/'));
    *sources = slice_eqs(name, "Sources");
    return *sources || slice_eqs(name, "Packages");
}

struct packages *packages_open(bool sources, const struct packages_events *ev)
{
    struct packages *p = NEW(struct packages);
    struct deb822_events events = {on_packages_field, on_packages_stanza_end, p};

    p->ev = *ev;
    p->sources = sources;
    p->path = BUF_INIT(PATH_ROOM);
    p->text = BUF_INIT(1 << 20);
    deb822_init(&p->reader, &events);
    return p;
}

int packages_feed(struct packages *p, struct slice bytes, struct err *e)
{
    return deb822_feed(&p->reader, bytes, e);
}

int packages_finish(struct packages *p, struct err *e)
{
    return deb822_finish(&p->reader, e);
}

void packages_close(struct packages **pp)
{
    struct packages *p = *pp;

    *pp = NULL;
    if (p != NULL) {
        deb822_fini(&p->reader);
        buf_free(&p->path);
        buf_free(&p->text);
        free(p->file);
        free(p);
    }
}
