#include "server/sync/rpm/repomd.h"

#include <expat.h>
#include <stdlib.h>

#include "common/base/buf.h"
#include "server/store/tree.h"

/* --- XML -------------------------------------------------------------------------------------- */

enum {
    DEPTH_MAX = 32,
    TEXT_BYTES = 16 << 10, /* of one element: more is dropped, what is asked for is short */
    PIECE_BYTES = 64 << 10,
    TAG_BYTES = 1 << 20, /* expat keeps a tag until its end */
};

/* Elements with their attributes, then their text at their end. A stranger wrote it: no document
 * type, so no entities of its own; depth, text and tags have bounds. */
struct xml_events { /* names without prefix ("rpm:sourcerpm" is "sourcerpm"). Nonzero ends it */
    int (*on_open)(void *arg, unsigned depth, const char *name, const char **attributes,
                   struct err *e); /* the root's depth is 1; attributes: name, value, ..., NULL */
    int (*on_end)(void *arg, unsigned depth, const char *name, struct slice text, struct err *e);
    void *arg;
};

struct xml {
    struct xml_events ev;
    XML_Parser p;
    unsigned depth;
    struct buf text;
    uint64_t fed;
    int rc;
    struct err *e;
};

static void xml_stop(struct xml *x, int rc)
{
    x->rc = rc;
    XML_StopParser(x->p, XML_FALSE);
}

static const char *bare_element_name(const char *name)
{
    const char *colon = strrchr(name, ':');

    return colon != NULL ? colon + 1 : name;
}

static void XMLCALL xml_on_open(void *arg, const XML_Char *name, const XML_Char **attributes)
{
    struct xml *x = arg;
    int rc;

    if (x->rc != 0) {
        return; /* expat may have some more to say */
    }
    buf_clear(&x->text);
    if (++x->depth > DEPTH_MAX) {
        xml_stop(
            x, err_set(x->e, E_TOOBIG, "the index is nested more than %d levels deep", DEPTH_MAX));
        return;
    }
    rc = x->ev.on_open(x->ev.arg, x->depth, bare_element_name(name), attributes, x->e);
    if (rc != 0) {
        xml_stop(x, rc);
    }
}

static void XMLCALL xml_on_end(void *arg, const XML_Char *name)
{
    struct xml *x = arg;
    int rc;

    if (x->rc != 0) {
        return;
    }
    rc = x->ev.on_end(x->ev.arg, x->depth--, bare_element_name(name),
                      slice_of(x->text.n != 0 ? x->text.p : "", x->text.n), x->e);
    buf_clear(&x->text);
    if (rc != 0) {
        xml_stop(x, rc);
    }
}

static void XMLCALL xml_on_text(void *arg, const XML_Char *p, int n)
{
    struct xml *x = arg;

    buf_add(&x->text, p, (size_t)n);
}

static void XMLCALL xml_on_doctype(void *arg, const XML_Char *name, const XML_Char *system,
                                   const XML_Char *public_id, int internal)
{
    struct xml *x = arg;

    (void)name;
    (void)system;
    (void)public_id;
    (void)internal;
    xml_stop(x, err_set(x->e, E_INVALID, "the index has a document type, which is not allowed"));
}

static struct xml *xml_open(const struct xml_events *ev)
{
    struct xml *x = NEW(struct xml);

    x->ev = *ev;
    x->text = BUF_INIT(TEXT_BYTES);
    x->p = XML_ParserCreate(NULL);
    CHECK(x->p != NULL);
    XML_SetUserData(x->p, x);
    XML_SetElementHandler(x->p, xml_on_open, xml_on_end);
    XML_SetCharacterDataHandler(x->p, xml_on_text);
    XML_SetStartDoctypeDeclHandler(x->p, xml_on_doctype);
    return x;
}

static int xml_verdict(struct xml *x, enum XML_Status status, struct err *e)
{
    if (x->rc != 0) {
        return x->rc;
    }
    return status == XML_STATUS_OK ? 0
                                   : err_set(e, E_INVALID, "the index is not XML: %s",
                                             XML_ErrorString(XML_GetErrorCode(x->p)));
}

static int xml_feed(struct xml *x, struct slice bytes, struct err *e)
{
    int rc = 0;

    x->e = e;
    while (rc == 0 && bytes.n != 0) {
        size_t n = bytes.n < PIECE_BYTES ? bytes.n : PIECE_BYTES;
        rc = xml_verdict(x, XML_Parse(x->p, bytes.p, (int)n, 0), e);
        bytes = slice_from(bytes, n);
        x->fed += n;
        if (rc == 0 && x->fed - (uint64_t)XML_GetCurrentByteIndex(x->p) > TAG_BYTES) {
            rc = err_set(e, E_TOOBIG, "the index has a tag of more than %d bytes", TAG_BYTES);
        }
    }
    return rc;
}

static int xml_finish(struct xml *x, struct err *e)
{
    x->e = e;
    return xml_verdict(x, XML_Parse(x->p, "", 0, 1), e);
}

static void xml_close(struct xml **xp)
{
    struct xml *x = *xp;

    *xp = NULL;
    if (x != NULL) {
        XML_ParserFree(x->p);
        buf_free(&x->text);
        free(x);
    }
}

/* NULL: there is no such attribute; prefixes count ("xml:base"). */
static const char *xml_attribute(const char **attributes, const char *name)
{
    for (; attributes[0] != NULL; attributes += 2) {
        if (strcmp(attributes[0], name) == 0) {
            return attributes[1];
        }
    }
    return NULL;
}

/* --- repomd.xml --- */

enum { DATA_MAX = 256 };

struct reader {
    struct repomd *r;
    struct repomd_data *at; /* inside <data> */
    char kind[16];          /* of the checksum at hand */
    bool root;
};

static void keep_kind(char *kind, size_t room, const char **attributes)
{
    const char *type = xml_attribute(attributes, "type");

    kind[0] = '\0';
    if (type != NULL && strlen(type) < room) {
        memcpy(kind, type, strlen(type) + 1);
    }
}

/* <location href="...">, one that stays in this repository. */
static int location(const char **attributes, struct slice *path, struct err *e)
{
    const char *href = xml_attribute(attributes, "href");

    if (xml_attribute(attributes, "xml:base") != NULL) {
        return err_set(e, E_UNSUPPORTED,
                       "it lists a file at another location (xml:base), which a mirror of this "
                       "tree cannot contain");
    }
    *path = slice_str(href != NULL ? href : "");
    while (slice_starts(*path, SLICE("./"))) {
        *path = slice_from(*path, 2);
    }
    return tree_path_valid(*path)
               ? 0
               : err_set(e, E_INVALID, "it lists an invalid path: %.80s", href != NULL ? href : "");
}

static int digest_of_text(const char *kind, struct slice text, struct sum *out, struct err *e)
{
    if (sum_parse(slice_str(kind), slice_trim(text), out)) {
        return 0;
    }
    return out->kind == SUM_NONE
               ? err_set(e, E_UNSUPPORTED, "its digests are \"%s\", which is not supported", kind)
               : err_set(e, E_INVALID, "it has an invalid digest");
}

static int open_data(struct reader *x, const char **attributes, struct err *e)
{
    struct repomd *r = x->r;
    const char *type = xml_attribute(attributes, "type");

    if (r->count == DATA_MAX) {
        return err_set(e, E_TOOBIG, "repomd.xml lists more than %d indexes", DATA_MAX);
    }
    if (r->count == r->room) {
        r->room = r->room != 0 ? 2 * r->room : 16;
        r->data = realloc(r->data, r->room * sizeof r->data[0]);
        CHECK(r->data != NULL);
    }
    x->at = &r->data[r->count++];
    *x->at =
        (struct repomd_data){.type = arena_copy(&r->arena, slice_str(type != NULL ? type : "")),
                             .size_bytes = UINT64_MAX};
    return 0;
}

static int on_repomd_element_open(void *arg, unsigned depth, const char *name,
                                  const char **attributes, struct err *e)
{
    struct reader *x = arg;
    struct slice path;
    int rc = 0;

    if (depth == 1) {
        x->root = strcmp(name, "repomd") == 0;
    } else if (depth == 2) {
        x->at = NULL;
        rc = x->root && strcmp(name, "data") == 0 ? open_data(x, attributes, e) : 0;
    } else if (depth == 3 && x->at != NULL && strcmp(name, "checksum") == 0) {
        keep_kind(x->kind, sizeof x->kind, attributes);
    } else if (depth == 3 && x->at != NULL && strcmp(name, "location") == 0) {
        rc = location(attributes, &path, e);
        if (rc == 0) {
            x->at->path = arena_copy(&x->r->arena, path);
        }
    }
    return rc;
}

static int on_repomd_element_end(void *arg, unsigned depth, const char *name, struct slice text,
                                 struct err *e)
{
    struct reader *x = arg;

    if (depth == 3 && x->at != NULL && strcmp(name, "checksum") == 0) {
        return digest_of_text(x->kind, text, &x->at->sum, e);
    }
    if (depth == 3 && x->at != NULL && strcmp(name, "size") == 0 &&
        !slice_u64(slice_trim(text), &x->at->size_bytes)) {
        return err_set(e, E_INVALID, "repomd.xml has an invalid size");
    }
    if (depth == 2 && x->at != NULL && (x->at->path.n == 0 || x->at->sum.kind == SUM_NONE)) {
        return err_set(e, E_INVALID, "repomd.xml lists an index without a location or digest");
    }
    return 0;
}

int repomd_read(struct slice bytes, struct repomd *out, struct err *e)
{
    struct reader x = {.r = out};
    struct xml_events ev = {on_repomd_element_open, on_repomd_element_end, &x};
    struct xml *p = xml_open(&ev);
    int rc;

    *out = (struct repomd){0};
    rc = xml_feed(p, bytes, e);
    rc = rc != 0 ? rc : xml_finish(p, e);
    if (rc == 0 && repomd_find(out, "primary") == NULL) {
        rc = err_set(e, E_INVALID, "repomd.xml does not list a primary index");
    }
    xml_close(&p);
    if (rc != 0) {
        repomd_free(out);
    }
    return rc;
}

void repomd_free(struct repomd *r)
{
    arena_fini(&r->arena);
    free(r->data);
    *r = (struct repomd){0};
}

const struct repomd_data *repomd_find(const struct repomd *r, const char *type)
{
    for (size_t i = 0; i < r->count; i++) {
        if (slice_eqs(r->data[i].type, type)) {
            return &r->data[i];
        }
    }
    return NULL;
}

/* --- primary.xml --- */

struct primary {
    struct primary_events ev;
    struct xml *xml;
    bool root, package;
    char kind[16];
    struct arena arena; /* of the package at hand */
    struct slice path;
    uint64_t size_bytes;
    struct sum sum;
};

static int primary_on_open(void *arg, unsigned depth, const char *name, const char **attributes,
                           struct err *e)
{
    struct primary *p = arg;
    struct slice path;
    const char *size;
    int rc = 0;

    if (depth == 1) {
        p->root = strcmp(name, "metadata") == 0;
    } else if (depth == 2) {
        p->package = p->root && strcmp(name, "package") == 0;
        p->path = SLICE_NONE;
        p->size_bytes = UINT64_MAX;
        p->sum = (struct sum){0};
        arena_reset(&p->arena);
    } else if (depth != 3 || !p->package) {
        return 0;
    } else if (strcmp(name, "checksum") == 0) {
        keep_kind(p->kind, sizeof p->kind, attributes);
    } else if (strcmp(name, "size") == 0) {
        size = xml_attribute(attributes, "package");
        if (size == NULL || !slice_u64(slice_str(size), &p->size_bytes)) {
            return err_set(e, E_INVALID, "a package has an invalid size");
        }
    } else if (strcmp(name, "location") == 0) {
        rc = location(attributes, &path, e);
        if (rc == 0) {
            p->path = arena_copy(&p->arena, path);
        }
    }
    return rc;
}

static int primary_on_end(void *arg, unsigned depth, const char *name, struct slice text,
                          struct err *e)
{
    struct primary *p = arg;

    if (!p->package) {
        return 0;
    }
    if (depth == 3 && strcmp(name, "checksum") == 0) {
        return digest_of_text(p->kind, text, &p->sum, e);
    }
    if (depth != 2) {
        return 0;
    }
    p->package = false;
    if (p->path.n == 0 || p->sum.kind == SUM_NONE || p->size_bytes == UINT64_MAX) {
        return err_set(e, E_INVALID, "it lists a package without a location, size or digest");
    }
    return p->ev.on_file(p->ev.arg, p->path, p->size_bytes, &p->sum, e);
}

struct primary *primary_open(const struct primary_events *ev)
{
    struct primary *p = NEW(struct primary);
    struct xml_events events = {primary_on_open, primary_on_end, p};

    p->ev = *ev;
    p->xml = xml_open(&events);
    return p;
}

int primary_feed(struct primary *p, struct slice bytes, struct err *e)
{
    return xml_feed(p->xml, bytes, e);
}

int primary_finish(struct primary *p, struct err *e)
{
    int rc = xml_finish(p->xml, e);

    return rc != 0 || p->root
               ? rc
               : err_set(e, E_INVALID, "this is not a primary.xml: its root is not <metadata>");
}

void primary_close(struct primary **pp)
{
    struct primary *p = *pp;

    *pp = NULL;
    if (p != NULL) {
        xml_close(&p->xml);
        arena_fini(&p->arena);
        free(p);
    }
}
