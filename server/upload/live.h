/* live.h - the open upload sessions, in memory: how many files each has, which paths are being
 * written, and how many sessions and bytes each client has.
 *
 * Counted are sessions begun since the start and not finished. What a finished session keeps for
 * the next files of its upload grant is counted separately, and may be as much again.
 *
 * Sessions of files end with their commit. An upload grant (upload_grant.h) is finished when the
 * objects that it was opened for have arrived, an append when it is complete. An upload grant whose
 * files are assembled from pieces is finished by each list of them, and open again with the next
 * piece. Finished sessions give their bytes back to the client's share, and so do those that
 * expire.
 *
 * Each path has one writer, and none during a commit. The latest writer gets the path: an earlier
 * one is asked to yield, once, and is gone when its sink is closed.
 *
 * owns     struct uploads, from uploads_open() to uploads_close(); writers and charges are the
 *          caller's memory
 * threads  any; takes its own lock, and calls yield() under it
 * errors   E_NOSPACE: the client has used its share; E_BUSY: another request writes the path
 */
#ifndef SERVER_UPLOAD_LIVE_H
#define SERVER_UPLOAD_LIVE_H

#include <stdatomic.h>

#include "common/base/list.h"
#include "common/os/lock.h"
#include "server/store/ingest.h"
#include "server/upload/upload.h"

enum { SESSIONS_MAX = 4096, CLIENT_SESSIONS = 256 };

/* What one request adds to the bytes of its client's sessions, which are limited. Bytes that a row
 * describes stay counted when the request ends; all others are returned then. Nothing is counted
 * for a session that is not open. */
struct charge {
    struct uploads *u;
    const char *id; /* the session's; the caller's memory */
    uint64_t bytes; /* counted now */
    uint64_t kept;  /* of those, in a committed row */
    bool part;      /* the object has other charges, too */
};

struct live; /* one session */
struct writer {
    struct list node;
    const char *id;
    struct slice path;
    /* Of an upload grant: one that is finished, or older than the start, is not among the open
     * sessions. */
    bool loose;
    bool fresh; /* counted as a file, but without a row yet: uncounted if it leaves like this */
    bool yielding;
    void (*yield)(void *arg); /* may be NULL */
    void *yield_arg;
};
struct uploads {
    struct store *store;
    struct lock lock;
    struct live *live;          /* by id */
    unsigned finished_count;    /* of `live`: open only for what they keep */
    struct client_use *clients; /* that have sessions */
    struct list writers;
    _Atomic size_t bodies; /* open sinks */
    /* Objects that come in parts (parts.h), the most recently used first. */
    struct list multipart_uploads;
    unsigned multipart_uploads_count;
    int (*make_room)(void *arg, uint64_t need_bytes);
    void *make_room_arg;
    struct upload_source source;      /* fetch NULL: there is none */
    _Atomic uint32_t client_sessions; /* the limit of one client */
    _Atomic uint64_t client_bytes;    /* in them; 0: a quarter of the quota */
};

/* row_bytes: the bytes in the row of the file or part, counted by an earlier request; 0: no row. */
void charge_begin(struct charge *c, struct uploads *u, const char *id, uint64_t row_bytes);
/* Counts n more bytes. E_NOSPACE: the client has used its share. */
MUST_USE int charge_take(struct charge *c, uint64_t n, struct err *e);
/* n of the bytes that it took are not present */
void charge_give(struct charge *c, uint64_t n);
/* the row was committed with so many bytes */
void charge_keep(struct charge *c, uint64_t row_bytes);
/* Returns the bytes without a row. A charge that was not begun is fine. */
void charge_settle(struct charge *c);

/* As ingest_open() and ingest_resume(); when the disk is full, make_room() is called once. Space is
 * taken as bytes come: an announced length (or UINT64_MAX) reserves none, but must not exceed the
 * quota. */
MUST_USE int uploads_open_ingest(struct uploads *u, uint64_t expect_bytes, bool named,
                                 struct ingest **out, struct err *e);
MUST_USE int uploads_resume(struct uploads *u, uint64_t id, uint64_t at, uint64_t expect_bytes,
                            struct ingest **out, struct err *e);
/* As ingest_append(). The charge, or NULL, takes the bytes first. */
MUST_USE int uploads_append(struct charge *c, struct ingest *in, struct slice bytes, struct err *e);
/* awaited: for an upload grant, the distinct objects that will finish it, `count` of them; 0: it
 * has files. client 0: the program itself, which has no limit. False: answered with 429 (the client
 * has its maximum) or 503 (all have). */
MUST_USE bool live_admit(struct uploads *u, const char *id, uint64_t client,
                         const struct digest *awaited, size_t count, struct upload_reply *out);
/* The same for an upload grant that may be open already: it is not counted twice. */
enum live_admitted { LIVE_REFUSED, LIVE_ADMITTED, LIVE_ALREADY };
enum live_admitted live_admit_again(struct uploads *u, const char *id, uint64_t client,
                                    const struct digest *awaited, size_t count,
                                    struct upload_reply *out);
/* An object of this upload grant has arrived. One that it does not await, or not any more, changes
 * nothing. */
void live_came(struct uploads *u, const char *id, const struct digest *d);
/* Stands for objects that are not known before they come: those of an append, or lists of files
 * that are assembled. */
#define AWAITED_ANY (&(const struct digest){{0}})
/* Files were assembled from the pieces of this upload grant. May it keep the pieces for the next
 * files? False: its client keeps its maximum already. */
bool live_may_keep(struct uploads *u, const char *id);
/* It keeps its pieces, or those that files were made of have been removed. It is finished then, if
 * it awaits nothing else. If pieces are left that no file was made of, it stays open. */
void live_assembled(struct uploads *u, const char *id, bool keeps);
void live_remove(struct uploads *u, const char *id);
/* Is it counted for a client? It is, if it has a client and was begun since the start. */
bool live_is_counted(struct uploads *u, const char *id);
/* 0; E_BUSY: another request writes this path and was asked to yield; E_CHANGED: the path may not
 * be written, *why says why. */
MUST_USE int live_enter(struct uploads *u, struct writer *w, const char **why);
/* The writer's path is a new file of the session. False: the session has UPLOAD_FILES_MAX. */
MUST_USE bool live_count(struct uploads *u, struct writer *w);
/* True: a request writes this path and was asked to yield. */
bool live_disturb(struct uploads *u, const char *id, struct slice path);
void live_leave(struct uploads *u, struct writer *w);
/* False: a path is being written, or another commit is under way. */
bool live_begin_commit(struct uploads *u, const char *id);
void live_end_commit(struct uploads *u, const char *id);
size_t live_files(struct uploads *u, const char *id);

#endif
