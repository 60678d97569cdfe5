/* live.h - the upload sessions that live, in memory: how many files each has, who writes to which
 * right now, and how many sessions and bytes each client has in those that it began since the start
 * and has not finished. What a finished one keeps for the next files of its upload grant is counted
 * apart, and may be as much again.
 *
 * Sessions of files end with their commit; an upload grant (upload_grant.h) is finished when what
 * it was opened for has come, an append when it is whole. One that files are put together in is
 * finished by each list of them, and lives again with the next piece. Finished ones give back what
 * they had of their client's share, as do those that expire.
 *
 * One writer a path, none during a commit. Who comes last has the path: a writer that stands in the
 * way is asked to yield, once, and is gone when its sink is closed.
 *
 * threads  any; takes its own lock, and calls yield() under it
 */
#ifndef SERVER_UPLOAD_LIVE_H
#define SERVER_UPLOAD_LIVE_H

#include <stdatomic.h>

#include "common/base/list.h"
#include "common/os/lock.h"
#include "server/store/ingest.h"
#include "server/upload/upload.h"

enum { SESSIONS_MAX = 4096, CLIENT_SESSIONS = 256 };

/* What a request answers for of its session's bytes, which its client may have so many of. What a
 * row says is in the store stays counted when the request ends; all else is returned then. Of a
 * session that does not live nothing is counted. */
struct charge {
    struct uploads *u;
    const char *id; /* the session's; the caller's memory */
    uint64_t bytes; /* counted now */
    uint64_t kept;  /* of those, said by a committed row */
    bool part;      /* the object has other charges beside this one */
};

struct live; /* one session */
struct writer {
    struct list node;
    const char *id;
    struct slice path;
    /* of an upload grant: finished, or of before the start, it is not among those that live */
    bool loose;
    bool fresh; /* counted as a file, but no row tells of it yet: taken back when it leaves so */
    bool yielding;
    void (*yield)(void *arg); /* may be NULL */
    void *yield_arg;
};
struct uploads {
    struct store *store;
    struct lock lock;
    struct live *live;          /* by id */
    unsigned finished_count;    /* of `live`, that live for what they keep */
    struct client_use *clients; /* that have sessions */
    struct list writers;
    /* objects that come in parts (parts.h), the last one used in front */
    struct list multipart_uploads;
    unsigned multipart_uploads_count;
    int (*make_room)(void *arg, uint64_t need_bytes);
    void *make_room_arg;
    _Atomic uint32_t client_sessions; /* that one client may have */
    _Atomic uint64_t client_bytes;    /* in them; 0: a quarter of the quota */
};

/* row_bytes: what the row of the file or part says, counted by an earlier request; 0: there is
 * none. */
void charge_begin(struct charge *c, struct uploads *u, const char *id, uint64_t row_bytes);
/* n bytes more. E_NOSPACE: its client has its share. */
MUST_USE int charge_take(struct charge *c, uint64_t n, struct err *e);
void charge_give(struct charge *c, uint64_t n);         /* n of those that it took are not there */
void charge_keep(struct charge *c, uint64_t row_bytes); /* the row was committed so */
/* Returns what no row says. A charge that was not begun is fine. */
void charge_settle(struct charge *c);

/* ingest_open(), ingest_resume(); a full disk is asked once to make room. Space is taken as bytes
 * come: an announced length (or UINT64_MAX) takes none, it only must not exceed the quota. */
MUST_USE int uploads_open_ingest(struct uploads *u, uint64_t expect_bytes, bool named,
                                 struct ingest **out, struct err *e);
MUST_USE int uploads_resume(struct uploads *u, uint64_t id, uint64_t at, uint64_t expect_bytes,
                            struct ingest **out, struct err *e);
/* ingest_append(). The charge, or NULL, takes the bytes first. */
MUST_USE int uploads_append(struct charge *c, struct ingest *in, struct slice bytes, struct err *e);
/* awaited: of an upload grant, the distinct objects that will finish it, `count` of them; 0: it has
 * files. client 0: the program's own, it has no share. False: answered with 429, this client has as
 * many as one may have, or with 503, all have. */
MUST_USE bool live_admit(struct uploads *u, const char *id, uint64_t client,
                         const struct digest *awaited, size_t count, struct upload_reply *out);
/* The same for an upload grant that may live already: it is not counted twice. */
enum live_admitted { LIVE_REFUSED, LIVE_ADMITTED, LIVE_ALREADY };
enum live_admitted live_admit_again(struct uploads *u, const char *id, uint64_t client,
                                    const struct digest *awaited, size_t count,
                                    struct upload_reply *out);
/* An object has come to this upload grant. One that it does not await, or no longer, changes
 * nothing. */
void live_came(struct uploads *u, const char *id, const struct digest *d);
/* What an upload grant awaits whose objects are not known before they come: an append, lists of
 * files that are put together. */
#define AWAITED_ANY (&(const struct digest){{0}})
/* Files have been made of what this upload grant has. May it keep that for the next ones? No: its
 * client keeps as much as it may. */
bool live_may_keep(struct uploads *u, const char *id);
/* It keeps what it has, or what the files were made of has been removed. It is finished then, if it
 * awaits nothing else; where something is left that no file has been made of, it goes on. */
void live_assembled(struct uploads *u, const char *id, bool keeps);
void live_remove(struct uploads *u, const char *id);
/* It has a client's share: it is of a client, and of this life of the daemon. */
bool live_is_counted(struct uploads *u, const char *id);
/* 0; E_BUSY: another request writes this path, and was asked to yield; E_CHANGED: *why it may not
 * be written. */
MUST_USE int live_enter(struct uploads *u, struct writer *w, const char **why);
/* The writer's path is a file that the session did not have. False: it has UPLOAD_FILES_MAX. */
MUST_USE bool live_count(struct uploads *u, struct writer *w);
/* True: somebody writes this path, and was asked to yield. */
bool live_disturb(struct uploads *u, const char *id, struct slice path);
void live_leave(struct uploads *u, struct writer *w);
/* False: something is being written, or another commit is under way. */
bool live_begin_commit(struct uploads *u, const char *id);
void live_end_commit(struct uploads *u, const char *id);
size_t live_files(struct uploads *u, const char *id);

#endif
