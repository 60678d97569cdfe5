#include "server/repo/python/wheel.h"

#include <zlib.h>

#include "common/base/endian.h"
#include "server/repo/python/name.h"

enum {
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR_BYTES = 20,
    ENTRY_BYTES = 46,
    HEADER_BYTES = 30,
    COMMENT_MAX = 65535,
    TAIL_BYTES = 72 << 10,      /* more than the longest end; mostly directory and METADATA too */
    DIRECTORY_BYTES = 32 << 20, /* some 300,000 files */
    PACKED_SLACK = 64 << 10,    /* that packing may make of nothing */
    HEADER_SLACK = 4 << 10,     /* its own extra fields: asked for in one go */
    FLAG_ENCRYPTED = 1,
    STORED = 0,
    DEFLATED = 8,
    EXTRA_ZIP64 = 1,
};
#define SIGN_END     0x06054b50u
#define SIGN_END64   0x06064b50u
#define SIGN_LOCATOR 0x07064b50u
#define SIGN_ENTRY   0x02014b50u
#define SIGN_HEADER  0x04034b50u

static uint16_t le16(const char *p)
{
    return (uint16_t)le_get(p, 2);
}

static uint32_t le32(const char *p)
{
    return (uint32_t)le_get(p, 4);
}

static int lies(struct err *e, const char *what)
{
    return err_set(e, E_INVALID, "not a valid zip file: %s", what);
}

void wheel_begin(struct wheel *w, struct slice project, uint64_t size_bytes)
{
    *w = (struct wheel){.project = project, .size_bytes = size_bytes, .end = size_bytes};
    w->first = size_bytes > TAIL_BYTES ? size_bytes - TAIL_BYTES : 0;
}

bool wheel_wants(const struct wheel *w, uint64_t *first, uint64_t *end)
{
    *first = w->first;
    *end = w->end;
    if (w->step == WHEEL_HEADER) { /* and, most of the time, the data behind it */
        uint64_t room = w->directory - w->end;
        uint64_t more = HEADER_SLACK + w->name_bytes + w->packed_bytes;
        *end += more < room ? more : room;
    }
    return w->step != WHEEL_DONE;
}

/* --- the end ---------------------------------------------------------------------------------- */

/* The only place where an end may begin whose comment goes to the file's last byte. */
static int find_end(struct slice tail, size_t *at, struct err *e)
{
    size_t found = 0;

    for (size_t back = END_BYTES; back <= tail.n && back <= END_BYTES + COMMENT_MAX; back++) {
        const char *p = tail.p + tail.n - back;
        if (le32(p) == SIGN_END && le16(p + 20) + (size_t)END_BYTES == back) {
            *at = tail.n - back;
            found++;
        }
    }
    return found == 1   ? 0
           : found == 0 ? lies(e, "its end record is missing")
                        : lies(e, "it has more than one end record");
}

/* Of zip64: right in front of its locator, which is right in front of the end. */
static int find_end64(struct slice tail, uint64_t tail_at, size_t end, size_t *at, struct err *e)
{
    const char *locator = tail.p + end - LOCATOR_BYTES;
    uint64_t where;

    if (end < LOCATOR_BYTES + END64_BYTES || le32(locator) != SIGN_LOCATOR ||
        le32(locator + 4) != 0 || le32(locator + 16) > 1) {
        return lies(e, "its zip64 end record is missing");
    }
    where = le_get(locator + 8, 8);
    *at = end - LOCATOR_BYTES - END64_BYTES;
    if (where != tail_at + *at || le32(tail.p + *at) != SIGN_END64 ||
        le_get(tail.p + *at + 4, 8) != END64_BYTES - 12) {
        return lies(e, "its zip64 end record is at another place");
    }
    return 0;
}

static int read_end(struct wheel *w, struct slice tail, struct err *e)
{
    size_t at = 0;
    uint64_t size, behind; /* of the directory; what stands behind it */
    const char *p;
    int rc = find_end(tail, &at, e);

    if (rc != 0) {
        return rc;
    }
    p = tail.p + at;
    if (le32(p + 4) != 0 || le16(p + 8) != le16(p + 10)) {
        return lies(e, "it is one part of a multi-part archive");
    }
    w->entries = le16(p + 10);
    size = le32(p + 12);
    w->directory = le32(p + 16);
    if (w->entries == UINT16_MAX || size == UINT32_MAX || w->directory == UINT32_MAX) {
        rc = find_end64(tail, w->first, at, &at, e);
        if (rc != 0) {
            return rc;
        }
        p = tail.p + at;
        w->entries = le_get(p + 32, 8);
        size = le_get(p + 40, 8);
        w->directory = le_get(p + 48, 8);
        if (le_get(p + 16, 8) != 0 || le_get(p + 24, 8) != w->entries) {
            return lies(e, "it is one part of a multi-part archive");
        }
    }
    behind = w->first + at;
    if (size > behind || w->directory != behind - size) {
        return lies(e, "its directory is not directly before its end record");
    }
    if (size > DIRECTORY_BYTES) {
        return err_set(e, E_TOOBIG, "its directory is larger than %d MiB", DIRECTORY_BYTES >> 20);
    }
    w->step = WHEEL_DIRECTORY;
    w->first = w->directory;
    w->end = behind;
    return 0;
}

/* --- the directory ---------------------------------------------------------------------------- */

/* "<project>-<version>.dist-info/METADATA", at the top. *other: a METADATA at the top, of
 * whatever. */
static bool is_metadata(const struct wheel *w, struct slice path, bool *other)
{
    static const char ending[] = ".dist-info/METADATA";
    struct slice folder;
    struct arena a = {0};
    bool yes;

    *other = slice_ends(path, slice_str(ending));
    if (!*other) {
        return false;
    }
    folder = slice_first(path, path.n - (sizeof ending - 1));
    *other = slice_find(folder, '/') < 0;
    while (folder.n > 0 && folder.p[folder.n - 1] != '-') {
        folder.n--;
    }
    yes = *other && folder.n > 0 &&
          slice_eq(pyname_normal(slice_first(folder, folder.n - 1), &a), w->project);
    arena_fini(&a);
    return yes;
}

/* What does not fit in 32 bits stands in a field of its own, in this order. */
static bool read_zip64(struct slice extra, bool bytes, bool packed, bool header, struct wheel *w)
{
    while (extra.n >= 4) {
        size_t n = le16(extra.p + 2);
        struct slice field = slice_from(extra, 4);
        if (n > field.n) {
            return false;
        }
        if (le16(extra.p) == EXTRA_ZIP64) {
            uint64_t *to[] = {bytes ? &w->bytes : NULL, packed ? &w->packed_bytes : NULL,
                              header ? &w->header : NULL};
            field = slice_first(field, n);
            for (size_t i = 0; i < ARRAY_LEN(to); i++) {
                if (to[i] != NULL && field.n < 8) {
                    return false;
                }
                if (to[i] != NULL) {
                    *to[i] = le_get(field.p, 8);
                    field = slice_from(field, 8);
                }
            }
            return true;
        }
        extra = slice_from(field, n);
    }
    return false;
}

static int read_entry(struct wheel *w, const char *p, struct slice path, struct slice extra,
                      struct err *e)
{
    bool bytes, packed, header;

    w->how = le16(p + 10);
    w->crc = le32(p + 16);
    w->packed_bytes = le32(p + 20);
    w->bytes = le32(p + 24);
    w->header = le32(p + 42);
    w->name_bytes = path.n;
    packed = w->packed_bytes == UINT32_MAX;
    bytes = w->bytes == UINT32_MAX;
    header = w->header == UINT32_MAX;
    if ((bytes || packed || header) && !read_zip64(extra, bytes, packed, header, w)) {
        return lies(e, "METADATA lacks its zip64 fields");
    }
    if ((le16(p + 8) & FLAG_ENCRYPTED) != 0 || (w->how != STORED && w->how != DEFLATED)) {
        return err_set(e, E_UNSUPPORTED,
                       "its METADATA is encrypted, or compressed with an unsupported method");
    }
    if (w->bytes > WHEEL_METADATA_BYTES || w->packed_bytes > WHEEL_METADATA_BYTES + PACKED_SLACK) {
        return err_set(e, E_TOOBIG, "its METADATA is larger than %d MiB",
                       WHEEL_METADATA_BYTES >> 20);
    }
    if (w->how == STORED && w->bytes != w->packed_bytes) {
        return lies(e, "METADATA has two different sizes");
    }
    if (w->header > w->directory || w->directory - w->header < HEADER_BYTES + w->packed_bytes) {
        return lies(e, "METADATA is outside the file's data");
    }
    return 0;
}

static int read_directory(struct wheel *w, struct slice all, struct err *e)
{
    uint64_t entries = 0;
    unsigned found = 0, others = 0;
    int rc = 0;

    while (rc == 0 && all.n != 0) {
        const char *p = all.p;
        size_t name, extra, comment;
        struct slice path;
        bool other = false;
        if (all.n < ENTRY_BYTES || le32(p) != SIGN_ENTRY) {
            return lies(e, "its directory is truncated");
        }
        name = le16(p + 28);
        extra = le16(p + 30);
        comment = le16(p + 32);
        if (all.n - ENTRY_BYTES < name + extra + comment) {
            return lies(e, "its directory is truncated");
        }
        path = slice_of(p + ENTRY_BYTES, name);
        if (is_metadata(w, path, &other) && found++ == 0) {
            rc = read_entry(w, p, path, slice_of(p + ENTRY_BYTES + name, extra), e);
        }
        others += other;
        entries++;
        all = slice_from(all, ENTRY_BYTES + name + extra + comment);
    }
    if (rc == 0 && entries != w->entries) {
        rc = lies(e, "its directory has another number of entries than its end record says");
    }
    if (rc == 0 && others != 1) {
        rc = others == 0 ? err_set(e, E_INVALID, "it has no METADATA")
                         : lies(e, "it has METADATA more than once");
    }
    if (rc == 0 && found == 0) {
        rc = err_set(e, E_INVALID, "its METADATA is of another project");
    }
    w->step = WHEEL_HEADER;
    w->first = w->header;
    w->end = w->header + HEADER_BYTES;
    return rc;
}

/* --- METADATA --------------------------------------------------------------------------------- */

static int read_header(struct wheel *w, struct slice h, struct err *e)
{
    uint64_t before = HEADER_BYTES + (uint64_t)le16(h.p + 26) + le16(h.p + 28);

    if (le32(h.p) != SIGN_HEADER || le16(h.p + 8) != w->how || le16(h.p + 26) != w->name_bytes ||
        (le16(h.p + 6) & FLAG_ENCRYPTED) != 0) {
        return lies(e, "the header of METADATA differs from the directory");
    }
    if (w->directory - w->header < before + w->packed_bytes) {
        return lies(e, "METADATA is outside the file's data");
    }
    w->step = WHEEL_DATA;
    w->first = w->header + before;
    w->end = w->first + w->packed_bytes;
    return 0;
}

/* To the byte: what is longer or shorter than was said is refused. */
static bool inflate_to(struct slice packed, char *to, size_t n)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)packed.p,
                  .avail_in = (uInt)packed.n,
                  .next_out = (Bytef *)to,
                  .avail_out = (uInt)n + 1};
    bool fine;

    CHECK(inflateInit2(&z, -MAX_WBITS) == Z_OK); /* else memory is out */
    fine = inflate(&z, Z_FINISH) == Z_STREAM_END && z.avail_in == 0 && z.avail_out == 1;
    inflateEnd(&z);
    return fine;
}

static int read_data(struct wheel *w, struct slice data, struct buf *out, struct err *e)
{
    size_t n = (size_t)w->bytes;
    char *to = buf_room(out, n + 1);

    if (to == NULL) {
        return err_set(e, E_TOOBIG, "its METADATA is too large: %zu bytes", n);
    }
    if (w->how == DEFLATED) {
        if (!inflate_to(data, to, n)) {
            return lies(e, "METADATA cannot be decompressed to its announced size");
        }
    } else if (n != 0) {
        memcpy(to, data.p, n);
    }
    if (crc32(crc32(0, NULL, 0), (const Bytef *)to, (uInt)n) != w->crc) {
        return lies(e, "the checksum of METADATA is wrong");
    }
    buf_grew(out, n);
    w->step = WHEEL_DONE;
    return 0;
}

int wheel_feed(struct wheel *w, uint64_t first, struct slice bytes, struct buf *out, struct err *e)
{
    int rc = 0;

    CHECK(w->step != WHEEL_DONE && first <= w->first && w->end <= first + bytes.n);
    if (w->size_bytes < END_BYTES) {
        return lies(e, "it has no end record");
    }
    /* Most of the time the rest lies in the same bytes. */
    while (rc == 0 && w->step != WHEEL_DONE && first <= w->first && w->end <= first + bytes.n) {
        struct slice part = slice_of(bytes.p + (w->first - first), (size_t)(w->end - w->first));
        switch (w->step) {
        case WHEEL_END:
            rc = read_end(w, part, e);
            break;
        case WHEEL_DIRECTORY:
            rc = read_directory(w, part, e);
            break;
        case WHEEL_HEADER:
            rc = read_header(w, part, e);
            break;
        case WHEEL_DATA:
            rc = read_data(w, part, out, e);
            break;
        case WHEEL_DONE:
            break;
        }
    }
    return rc;
}
