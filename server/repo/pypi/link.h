/* link.h - where the links of an index page lead, said anew so that they lead through the mirror.
 *
 * A file becomes "<up>+f/<link-id>/<path>": relative to the page, so that neither our public name nor a proxy's prefix
 * matters. The id is made of the file's origin (scheme, host, port) and of the page that names it; what stands for it, and
 * what the page tells of each file (SHA-256, size), are rows in TABLE_ORIGIN, so that a file request needs no page. A page
 * of the same index becomes a path below the repo. Whatever is neither http nor https, or leads to a host that origin.h
 * does not admit, is dropped.
 *
 *   repo NUL link-id                              -> origin NUL URL of the page
 *   repo NUL origin NUL path[?query] NUL link-id  -> SHA-256, u64 size: what that page tells of the file
 *
 * Pages may differ over one file. Each is believed for its own links: none takes away or replaces what another told, and
 * one that lies harms its own readers alone. Links of a page that tells no digest borrow the one that others tell, when
 * those agree; when they do not, it has none, as the page said. Silence withdraws nothing, a new digest replaces the
 * same page's old one. The object is one for all links, "+f/<origin>/<path>"; the cache holds it against each link's
 * digest (cache/entry.c).
 *
 * owns     slices of a struct link live in links' arena until links_fini() or the next links_reset()
 * threads  one at a time; no I/O: rows go into a batch
 */
#ifndef SERVER_REPO_PYPI_LINK_H
#define SERVER_REPO_PYPI_LINK_H

#include "server/repo/repo.h"

enum { LINK_ID = 16, ORIGINS_MAX = 64 };

struct file_facts {
    struct digest digest;
    uint64_t size_bytes; /* LENGTH_UNKNOWN */
};

void link_id(struct slice origin, struct slice page_path, char out[LINK_ID + 1]);
void link_row_key(struct buf *out, struct slice repo, struct slice id);
/* id "": what all such rows begin with. */
void file_row_key(struct buf *out, struct slice repo, struct slice origin, struct slice file,
                  struct slice id);
void file_row_encode(const struct file_facts *f, struct buf *out);
/* rows: one value behind the other. False: they differ, or there is none. */
MUST_USE bool file_rows_agree(struct slice rows, struct file_facts *out);

enum link_kind { LINK_NONE, LINK_FILE, LINK_PAGE };
struct link {
    enum link_kind kind;
    struct slice href;     /* as we say it, without fragment */
    struct slice fragment; /* as the page said it, without '#'; p == NULL */
    struct slice name;     /* of its last segment, decoded: the file's name, or the project's */
    struct slice origin;   /* LINK_FILE: these two as in its row's key */
    struct slice file;
    char id[LINK_ID + 1];
    bool child; /* LINK_PAGE: one segment below this page */
};

struct links {
    const struct repo *repo;
    bool only_named; /* hosts that the configuration does not name are dropped */
    struct slice page_path;
    struct slice page_url;
    struct buf base; /* URL that references are relative to */
    struct buf up;   /* "../../" from the page to the repo's root */
    struct slice roots[2];
    struct link_origin {
        struct buf key;
        char id[LINK_ID + 1];
        bool admitted;
    } origin[ORIGINS_MAX];
    size_t origins;
    struct arena arena;
    struct batch *rows;
    size_t dropped;
};

/* page_path: canonical, below the repo; page_url: where its bytes came from. r == NULL: for links_base() and links_where() alone, no
 * other argument but page_url counts. */
void links_init(struct links *l, const struct repo *r, bool only_named, struct slice page_path,
                struct slice page_url, struct batch *rows);
struct slice link_last_segment(struct slice path); /* "a/b/c" -> "c", "a/b/" -> "b" */
void links_fini(struct links *l);
void links_reset(struct links *l);                   /* the slices of links so far are void */
void links_base(struct links *l, struct slice href); /* <base href>: the first one counts */
struct slice links_where(const struct links *l);     /* what references are relative to */
void links_read(struct links *l, struct slice href, struct link *out);
/* Remembers what the page tells of a file; suffix: "" or ".metadata". */
void links_note(struct links *l, const struct link *k, struct slice suffix,
                const struct file_facts *f);

#endif
