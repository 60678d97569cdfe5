/* page.h - converts one simple page from the origin's form to ours: a reader (HTML or JSON) reports
 * what it finds, and the page writes it as HTML or JSON, changes links to lead through the mirror,
 * and records the results of files.
 *
 * JSON to JSON does not use this model (json.c edits the stream), so no unknown key is lost.
 * Nothing of an HTML page is copied through: what was not parsed is dropped.
 *
 * A file's link becomes "<up>+f/<link-id>/<path>": relative to the page, so it depends neither on
 * our public name nor on a proxy's prefix. The id is computed from the file's origin (scheme, host,
 * port) and the page that names it. What the id stands for, and what the page says of each file
 * (SHA-256, size), are rows in TABLE_ORIGIN, so that a request for a file needs no page. A link to
 * a page of the same index becomes a path below the repo. A link that is neither http nor https, or
 * leads to a host that origin.h does not admit, is dropped.
 *
 *   repo NUL link-id                              -> origin NUL URL of the page
 *   repo NUL origin NUL path[?query] NUL link-id  -> SHA-256, u64 size: what that page says of it
 *
 * Pages may contradict one another about a file. Each is trusted for its own links: none removes or
 * replaces what another said, and a false one only harms its own readers. A link of a page without
 * a digest uses the digest of other pages, if those agree; if not, it has none, as the page said. A
 * missing digest withdraws nothing; a new digest replaces the same page's old one. All links share
 * one object, "+f/<origin>/<path>"; the cache checks it against each link's digest (cache/entry.c).
 *
 * owns     slices of a struct link live in the page until the next links_reset() or page_fini()
 * threads  one at a time; no I/O: rows go into a batch
 * errors   E_PROTOCOL: the document is malformed
 */
#ifndef SERVER_REPO_PYPI_PAGE_H
#define SERVER_REPO_PYPI_PAGE_H

#include "common/codec/jwrite.h"
#include "server/repo/pypi/accept.h"
#include "server/repo/repo.h"

/* --- its links, and their rows --- */

enum { LINK_ID = 16, ORIGINS_MAX = 64 };

struct file_results {
    struct digest digest;
    uint64_t size_bytes; /* LENGTH_UNKNOWN */
};

void link_id(struct slice origin, struct slice page_path, char out[LINK_ID + 1]);
void link_row_key(struct buf *out, struct slice repo, struct slice id);
/* id "": the prefix of all such rows. */
void file_row_key(struct buf *out, struct slice repo, struct slice origin, struct slice file,
                  struct slice id);
void file_row_encode(const struct file_results *f, struct buf *out);
/* rows: the values in sequence. False: they differ, or there is none. */
MUST_USE bool file_rows_agree(struct slice rows, struct file_results *out);

enum link_kind { LINK_NONE, LINK_FILE, LINK_PAGE };
struct link {
    enum link_kind kind;
    struct slice href;     /* as we write it, without fragment */
    struct slice fragment; /* as in the page, without '#'; p == NULL */
    struct slice name;     /* the last segment, decoded: the name of the file or the project */
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
    struct buf base; /* the URL that references are relative to */
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

void links_reset(struct links *l);                   /* invalidates the slices of links so far */
void links_base(struct links *l, struct slice href); /* <base href>: the first one counts */
struct slice links_where(const struct links *l);     /* the URL that references are relative to */
void links_read(struct links *l, struct slice href, struct link *out);

/* --- a page --- */

struct page_file;

struct page {
    enum page_format format;
    bool own;            /* made by page_init_own(): links stay as given */
    struct buf versions; /* own, JSON: members of this array */
    struct links links;
    struct slice name; /* of the project: the last segment of the page's path */
    bool list;         /* the project list: names, not files */
    char version[16];  /* "1.1", as in the page; "" */
    struct buf files;  /* rendered; HTML or JSON, as format says */
    struct buf projects;
    struct buf metas;              /* HTML only: <meta name="pypi:..."> */
    struct buf tracks, alternates; /* JSON only: members of these arrays */
    size_t files_count;
    /* For a page that is only read (page_init_reported()): called for each file with what the page
     * says; nothing is rendered. */
    void (*tell)(void *arg, const struct page_file *f);
    void *tell_arg;
};

/* What a page says of a file; p == NULL: not given. */
struct page_file {
    struct slice href;
    struct slice requires_python, gpg_sig, upload_time;
    struct slice hash_name, hash; /* JSON: the best of "hashes"; HTML has it in href's fragment */
    struct slice metadata;        /* "sha256=<hex>", "true", or p == NULL: no sidecar */
    bool yanked;
    struct slice yanked_why;
    uint64_t size_bytes; /* LENGTH_UNKNOWN */
    struct slice more;   /* HTML to HTML: further data-* attributes, ready to be written */
};

void page_init(struct page *p, enum page_format f, const struct repo *r, bool only_named,
               struct slice path, struct slice url, struct batch *rows, size_t max_bytes);
/* Only for page_read_html() and page_read_json(). url: where the page is assumed to be. */
void page_init_reported(struct page *p, struct slice url,
                        void (*tell)(void *arg, const struct page_file *f), void *arg);
/* For a page of our own, written with page_add(), page_project() and page_version(). name: of the
 * project; "": the project list. */
void page_init_own(struct page *p, enum page_format f, struct slice name, size_t max_bytes);
/* Adds a file to a page of our own. */
void page_add(struct page *p, const struct page_file *f, struct slice href, struct slice name);
void page_version(struct page *p, struct slice version);
void page_fini(struct page *p);
void page_file(struct page *p, const struct page_file *f);
void page_project(struct page *p, struct slice name); /* JSON: only the name */
/* An anchor of an HTML page: a file, or a project if it leads to a page below this one. */
void page_anchor(struct page *p, const struct page_file *f, struct slice text);
/* <meta name="pypi:..."> or its equivalent in JSON. E_UNSUPPORTED: a version that is not 1.x. */
MUST_USE int page_meta(struct page *p, struct slice name, struct slice content, struct err *e);
/* Writes the whole page. */
MUST_USE int page_finish(struct page *p, struct buf *out, struct err *e);

/* Puts the results of a file and its sidecar into the rows. */
void page_note(struct page *p, const struct link *k, struct slice hash_name, struct slice hash,
               struct slice metadata, uint64_t size_bytes);

/* The readers. E_PROTOCOL: the document is malformed. */
MUST_USE int page_read_html(struct page *p, struct slice doc, struct err *e);
MUST_USE int page_read_json(struct page *p, struct slice doc, struct err *e);
/* JSON to JSON. */
MUST_USE int page_edit_json(struct page *p, struct slice doc, struct buf *out, struct err *e);

#endif
