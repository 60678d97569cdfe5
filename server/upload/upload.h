/* upload.h - the only way from outside into a hosted tree: upload sessions, and the operations of a
 * struct put.
 *
 * A session belongs to one tree ("owner/name"). Its files are staged and hashed while they arrive,
 * sealed when they are complete, and become visible together: the commit is one batch of tree
 * nodes, holder rows, snapshot and head. A PUT or DELETE of a single path is the same commit
 * without a session. Sessions are rows in TABLE_UPLOAD, survive a restart, and expire after 24
 * hours.
 *
 *   id            -> session: tree, begun, and after the commit its answer, so that a commit
 *                    may be repeated
 *   id NUL path   -> file: what has arrived durably (stage, bytes), or its digest once sealed
 *
 * owns     struct uploads outlives its sinks; an upload_reply's body is the caller's:
 *          upload_reply_free()
 * threads  all block and run on pool threads: different puts at the same time, the calls of one
 *          sink in order
 * errors   a client's error is a status in the reply and rc 0; a negative rc is our own trouble
 *          (500)
 */
#ifndef SERVER_UPLOAD_UPLOAD_H
#define SERVER_UPLOAD_UPLOAD_H

#include "common/hash/called.h"
#include "server/store/note.h"
#include "server/store/ref.h"

enum { UPLOAD_FILES_MAX = 100000, UPLOAD_EXPIRE_S = 24 * 3600, UPLOAD_ID = 32 };

enum put_kind {
    PUT_FILE,   /* body: one file, committed immediately */
    PUT_DELETE, /* path, or all below it when it ends in '/' or is empty; committed immediately */
    PUT_UPLOAD_OPEN,
    PUT_UPLOAD_FILE,   /* body */
    PUT_UPLOAD_STATUS, /* of one file, or of the session when path is empty */
    PUT_UPLOAD_COMMIT,
    PUT_UPLOAD_ABORT,
    PUT_CREATE, /* an empty tree; 412 when it exists */
    /* opens an upload of loose objects, whose bytes come before the commit that names them */
    PUT_UPLOAD_GRANT,
    /* an upload grant to the tree of put.objects that the tree `to` has; the 200 names those that
     * it lacks */
    PUT_OBJECTS_SHARE,
    PUT_OBJECT,       /* body: one of them, with the digest put.digest */
    PUT_PART,         /* body: part number put.part of an object (parts.h) */
    PUT_PARTS_END,    /* all put.parts_count parts are here and form the object */
    PUT_OBJECT_KNOWN, /* is the object here, with put.total bytes? */
    /* a loose object with its digest at the end (append.h); called: it may be here, in the tree
     * `to` */
    PUT_APPEND_OPEN,
    /* body: its next bytes, from put.first (UINT64_MAX: not given); called: its last bytes. Without
     * an id: all bytes in one request */
    PUT_APPEND,
    PUT_APPEND_STATUS,
    PUT_APPEND_DROP,
    /* body: a piece from which an assembler makes objects, kept under the path's name while the
     * upload grant lasts */
    PUT_PIECE,
    PUT_PIECE_KNOWN, /* is the piece here? */
    PUT_ASSEMBLE,    /* body: which objects consist of which pieces, for the assembler */
    PUT_CHANGES,     /* body: read by an adapter into changes.h, committed at its end */
    PUT_FORM,        /* body: a form with a file in it (form_upload.h), which an adapter reads */
    PUT_REF_ADD,     /* ref names a version (naming.h); 409 when the name is taken */
    PUT_REF_DROP,
    PUT_SQUASH,    /* the branch's history starts again, with its present files */
    PUT_TREE_MOVE, /* the tree gets the name `to`; 409 when that exists */
    PUT_TREE_COPY, /* the tree `to` is created as a copy; 409 when it exists */
    PUT_TREE_DROP  /* with all its versions */
};
enum { UPLOAD_GRANT_OBJECTS_MAX = 256, SHARE_OBJECTS_MAX = 1000 };
struct put_object {
    struct digest digest;
    uint64_t size_bytes;
};
struct put;
struct uploads;
struct session;
struct upload_reply;
/* Makes loose objects of pieces, for an adapter that knows their format (PUT_PIECE, PUT_ASSEMBLE).
 * Pool threads. */
struct assembler {
    uint64_t piece_bytes_max, list_bytes_max;
    /* The upload grant's session holds the objects made by the list. *reply: 200, or a refusal. */
    int (*run)(struct uploads *u, const struct put *p, const struct session *s, struct slice list,
               struct upload_reply *reply, struct err *e);
    /* Removes the pieces that this list names; the upload grant may have lost some of them
     * already. */
    int (*forget)(struct uploads *u, const struct session *s, struct slice list, struct err *e);
};
enum put_match { /* If-Match: what must exist */
                 MATCH_NOTHING,
                 MATCH_ANY,  /* *: the tree (PUT_FILE, PUT_DELETE: the path) */
                 MATCH_ROOT, /* "<root>": if_match must be the head's */
                 MATCH_FILE, /* "sha256-...": if_match must be the digest of the path */
};

struct put {
    enum put_kind kind;
    uint64_t client; /* http/principal.h; 0: the program itself */
    struct slice repo, name, path, upload_id;
    struct slice node;   /* the digits with which the ids of new uploads begin; n == 0: any */
    struct slice branch; /* the branch to publish on; p == NULL or "": the head */
    struct note note;    /* of the resulting version */
    struct ref ref;      /* PUT_REF_* */
    /* PUT_TREE_MOVE, PUT_TREE_COPY: the new name. PUT_APPEND_OPEN, PUT_OBJECTS_SHARE: another tree
     * that may have the object; p == NULL: none. */
    struct slice to;
    enum put_match match;
    bool if_none_match_any; /* If-None-Match: *, the target must not exist */
    /* PUT_DELETE of a file: also its companions, whose paths are its own, a '.' and more */
    bool beside;
    bool take_over; /* PUT_UPLOAD_STATUS of a file: first end the request that writes it */
    /* PUT_UPLOAD_COMMIT: the files are the whole tree; else they are merged into the head. */
    bool replace;
    struct digest if_match; /* MATCH_ROOT, MATCH_FILE */
    uint64_t max_bytes;     /* PUT_FILE, PUT_FORM: of the file; 0: no limit */
    bool digest_known;
    struct digest digest; /* Repr-Digest of the whole file */
    /* PUT_APPEND*, PUT_CHANGES: the name that the client gives to the bytes */
    struct called called;
    uint64_t first, total;            /* Content-Range; 0, UINT64_MAX without */
    const struct put_object *objects; /* PUT_UPLOAD_GRANT: the objects to come, */
    /* at most UPLOAD_GRANT_OBJECTS_MAX; PUT_OBJECTS_SHARE: SHARE_OBJECTS_MAX */
    size_t objects_count;
    const struct assembler *assembler; /* PUT_PIECE, PUT_ASSEMBLE */
    uint32_t part, parts_count;        /* PUT_PART: from 1 on; PUT_PARTS_END */
    /* PUT_UPLOAD_GRANT without objects: the tree's last one, if half of its life is left. */
    bool again;
    /* PUT_UPLOAD_OPEN, PUT_APPEND_OPEN: the request's path, to which the session's id is
     * appended. */
    struct slice location;
};

struct upload_reply {
    int status;                /* 200, 201, 202, 204, 308; 404, 409, 410, 412, 413, 416, 422, 507 */
    struct buf body;           /* JSON and a newline; or empty */
    struct slice content_type; /* static: the type of a body that is not JSON; p == NULL: JSON */
    char location[1024];       /* "" without */
    char etag[72];             /* the tree's root in quotes, or "" */
    bool offset_known; /* -> Upload-Offset, and Range: bytes=0-<offset - 1> when there is any */
    bool complete;     /* -> Upload-Complete: ?1, else ?0 (with offset_known) */
    uint64_t offset;
    bool published; /* the head has moved: the repo's generation must be incremented */
    /* PUT_CHANGES: a message of its reader for the code that words the answer; or "" */
    char word[272];
    char upload[UPLOAD_ID + 1]; /* PUT_UPLOAD_GRANT, PUT_APPEND_OPEN: its id, */
    uint64_t until_unix_s;      /* when it ends, */
    struct granted {
        bool held;           /* which of the objects are here already, */
        uint64_t part_bytes; /* 0: to be sent in one piece; else in parts of this size, */
        char upload[UPLOAD_ID +
                    1]; /* to this upload grant: an earlier one that has received parts */
    } granted[UPLOAD_GRANT_OBJECTS_MAX];
};
void upload_reply_free(struct upload_reply *r);

struct uploads *uploads_open(struct store *s);
void uploads_close(struct uploads **up);
/* The number of sessions that a client may have open (256 by default) and the bytes in them; 0: a
 * quarter of the quota. */
void uploads_limit(struct uploads *u, uint32_t client_sessions, uint64_t client_bytes);
/* Sessions that were begun since the start and have not finished, or bodies that are arriving,
 * whichever are more. */
size_t uploads_under_way(struct uploads *u);
/* Called once, on its pool thread, by a body that finds no space, before it answers 507. Returns 0
 * when there is room now. */
void uploads_on_full(struct uploads *u, int (*make_room)(void *arg, uint64_t need_bytes),
                     void *arg);

/* Objects that uploads to a tree have brought to another mirror of a cluster. fetch() gives the
 * bytes of one to sink(), in order; it blocks. E_NOTFOUND: no mirror has it. */
struct upload_source {
    int (*fetch)(void *arg, struct slice repo, struct slice tree, const struct digest *d,
                 int (*sink)(void *sink_arg, struct slice bytes), void *sink_arg, struct err *e);
    void *arg;
};
/* Before any put runs. */
void uploads_set_source(struct uploads *u, const struct upload_source *s);

bool put_has_body(enum put_kind k);
/* A copy with its texts in the arena; `objects` is not copied. */
struct put put_copy(const struct put *p, struct arena *a);
/* Runs the kinds without a body. E_BUSY: as upload_sink_open(). */
MUST_USE int upload_run(struct uploads *u, const struct put *p, uint64_t now_unix_s,
                        struct upload_reply *out, struct err *e);

/* A request body to be read. */
struct upload_body {
    uint64_t length; /* of this request's body; UINT64_MAX: unknown */
    /* Another request needs this file: the bytes received so far may be written, then the sink must
     * be closed. Called at most once, from any thread, never after the sink is gone; it must not
     * block nor call back. NULL: the other request has to wait until the body ends. */
    void (*yield)(void *arg);
    void *yield_arg;
};
/* Copies what it needs of *p. *out is NULL when the put is answered already (*reply has a status):
 * the body must be discarded. E_BUSY: an earlier request still writes this file and was asked to
 * yield; open again in a moment. */
struct upload_sink;
MUST_USE int upload_sink_open(struct uploads *u, const struct put *p,
                              const struct upload_body *body, struct upload_sink **out,
                              struct upload_reply *reply, struct err *e);
/* Takes the body's next bytes. reply->status != 0: answered early (507, 413); discard the rest and
 * do not call finish. */
MUST_USE int upload_sink_write(struct upload_sink *k, struct slice bytes,
                               struct upload_reply *reply, struct err *e);
/* The body is complete. Takes *kp, also when it fails. */
MUST_USE int upload_sink_finish(struct upload_sink **kp, uint64_t now_unix_s,
                                struct upload_reply *reply, struct err *e);
/* The client has disconnected: a session's file keeps the bytes received so far, for resuming; a
 * single file is dropped. NULL is fine. */
void upload_sink_close(struct upload_sink **kp);

/* Drops sessions begun more than UPLOAD_EXPIRE_S ago. Call it at the start, then from time to
 * time. */
MUST_USE int upload_expire(struct uploads *u, uint64_t now_unix_s, uint64_t *dropped,
                           struct err *e);

#endif
