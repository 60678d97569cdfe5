/* engine.h - what the pipeline asks of a way to reach an upstream: rsync, HTTP, another mirrord...
 *
 * An engine lists what there is, and brings the bytes of what is asked. It knows no snapshot and no
 * plan: which entries are new is decided by plan.c against the published head, so an engine keeps
 * nothing between two runs but an opaque cursor. One engine object is one visit: open, maybe probe,
 * list once, take any number, finish, close. When the connection breaks the pipeline opens another
 * one, lists again, and asks only for what is still missing.
 *
 * order    probe and list answer once each, list before the first take. Events never run inside the
 *          call that starts something, nor inside cancel and close; after cancel and close none
 *          comes any more
 * memory   entries are handed over one by one, in any order, and not kept by the engine on the
 *          pipeline's account: a list of 1 M must fit 100 MiB together with the pipeline's copy
 *          (some 45 bytes an entry). An engine that must keep its list (rsync's indices) keeps what
 *          a request needs, and gives `ref` to find it by
 * threads  all on the run's own thread, which has its own event_base (site.base). It may block for
 *          a row or a page of a file, never for a peer or an fsync; long work goes to site.disk,
 *          whose jobs reply to site.box
 * errors   sync_class_of() tells what the pipeline makes of a code. Sentences name host and reason,
 *          no secret
 */
#ifndef SERVER_SYNC_ENGINE_H
#define SERVER_SYNC_ENGINE_H

#include "common/base/err.h"
#include "common/os/message_queue.h"
#include "common/os/pool.h"
#include "server/fetch/request.h"
#include "server/repo/sync_conf.h"
#include "server/store/blob.h"
#include "server/sync/file_filter.h"

struct event_base;
struct engine; /* each engine's own; its first member is `const struct engine_ops *ops` */

struct engine_site { /* what a run lends its engine; outlives it */
    struct event_base *base;
    struct message_queue *box; /* messages to this thread */
    struct pool *disk;
    uint64_t client; /* the run's own: runs take turns on the disk like clients (pool.h) */
    struct store *store;
    struct origin_client *origin_client; /* on base; for engines that speak HTTP */
    const struct origin
        *origin;         /* of http, https and s3, else NULL: proxy, credentials, admission */
    struct slice repo;   /* whose run this is: for stage rows of what a list brings whole */
    struct slice url;    /* "rsync://host[:port]/module/path/", "https://host/path/" */
    const char *secret;  /* "user:password" where there is no origin to keep it; or NULL */
    const char *ca_file; /* or NULL: the system's */
    const char *proxy, *no_proxy; /* or NULL; for engines without an origin (proxy.h) */
    /* or NULL. The pipeline asks it for every entry: engines may, to list less */
    struct file_filter *file_filter;
    const struct sync_conf *conf; /* all of the section, for engines with settings of their own */
    const char *probe;            /* path of a file that changes whenever anything does; or NULL */
    uint32_t parallel;            /* requests at once, of engines that open a connection for each */
    uint32_t connect_ms, stall_ms;
    uint64_t entries_max;    /* of a list: more is E_TOOBIG */
    uint64_t list_bytes_max; /* of all list documents together */
    /* Before a stage fails for want of room: 0, there is some now. For engines that store what a
     * list brings. */
    int (*make_room)(void *arg, uint64_t need_bytes);
    void *make_room_arg;
    void (*log)(void *arg, const char *fmt, ...) PRINTF_LIKE(2, 3); /* a line of the run's log */
    void *log_arg;
};

enum probe_answer { PROBE_UNKNOWN, PROBE_SAME, PROBE_CHANGED };

struct engine_listed {   /* what is known once the list is there */
    struct slice cursor; /* opaque, at most 4 KiB, for the next probe; or p == NULL */
    bool partial;        /* the upstream could not read all of its own: nothing may be removed */
    bool digests;        /* every file has its digest */
    /* Of the tree that the entries make, when the upstream told it: the run publishes that one or
     * none. Or NULL. */
    const struct digest *root;
    /* Why somebody should look before this becomes public, though it is whole; or NULL. The run is
     * held. */
    const char *doubt;
    int64_t top_mtime_ns; /* of the folder that was listed; 0: not known */
    uint64_t wire_bytes;  /* that the list cost */
    uint64_t left_out;    /* devices, sockets, names that cannot be */
};

struct engine_events { /* of the whole engine */
    void (*on_probe)(void *arg, enum probe_answer a);
    /* 0, or an E_* that ends the list with it. */
    int (*on_entry)(void *arg, const struct sync_entry *en);
    void (*on_listed)(void *arg, int rc, const struct err *why, const struct engine_listed *l);
    /* Every take has been answered, engine_finish() came to its end (rc 0 or not: all bytes are
     * here anyway). */
    void (*on_finished)(void *arg, int rc, const struct err *why);
    /* At most once: no take will be answered any more but those that have been. Only close is
     * left. */
    void (*on_broken)(void *arg, int rc, const struct err *why);
};

/* --- one entry's bytes --- */

struct download_params {
    const struct sync_entry *entry; /* as listed, ref included; borrowed during the call */
    struct blob *basis; /* the path's former bytes, for a delta; or NULL. Borrowed like entry */
    /* A former try left so many bytes, which came under `validator`: the engine goes on behind them
     * when it can make sure that the rest belongs to them, else it begins at 0. */
    uint64_t have_bytes;
    struct slice validator;
    bool basis_begins; /* the basis is the beginning of the very file (engine_ops.from_basis) */
    bool again; /* it came whole, and was not what it must be: by another way, where there is one */
    bool unchanged_is_fine; /* the bytes of `validator` are here whole: "the same" is an answer */
};

struct download_result {
    bool unchanged;   /* with unchanged_is_fine: nothing came, it is as it was */
    bool absent;      /* nothing came: the list may name what is not there, and that is fine */
    int64_t mtime_ns; /* better than the list's; SYNC_TIME_UNKNOWN */
    struct slice validator; /* strong, of what came; or p == NULL */
    bool digest_known;      /* the upstream says what the bytes' SHA-256 is */
    struct digest digest;
    uint64_t beside_bytes; /* that came for it and are none of it */
};

struct download_events {
    /* Before the first byte of a try: it begins at `at`, 0 or have_bytes; what was given before
     * from there on is void. More than once when a digest of the engine's own failed, or the
     * upstream's file became another. */
    int (*on_begin)(void *arg, uint64_t at, struct slice validator);
    /* Bytes in order. 0, DOWNLOAD_PAUSE (taken, but no more until take_resume()), or an E_* that
     * ends this take with it. */
    int (*on_body)(void *arg, struct slice bytes);
    /* Exactly once, and last: the take is gone when it returns. got: with rc 0 alone. */
    void (*on_done)(void *arg, int rc, const struct err *why, const struct download_result *got);
    /* As on_body, of bytes that cost wire_bytes to bring. */
    int (*on_packed)(void *arg, struct slice bytes, uint64_t wire_bytes);
    /* As on_body, of bytes that were here: they cost no wire. */
    int (*on_copy)(void *arg, struct slice bytes);
};
enum { DOWNLOAD_PAUSE = 1 };

struct download; /* one under way; each engine's own */

struct engine_ops {
    const char *name;           /* "http", "rsync": as `engine =` says it */
    const char *const *schemes; /* of URLs, NULL behind the last: "rsync", "rsyncs" */
    /* It never goes on behind have_bytes: what a former run left is given as the basis. */
    bool from_basis;
    /* Begins nothing on the wire. E_CONFIG, E_INVALID: the URL or the site cannot be. */
    int (*open)(const struct engine_site *site, const struct engine_events *ev, void *arg,
                struct engine **out, struct err *e);
    /* cursor: as engine_listed gave it for the published head. May be NULL: then probe says
     * PROBE_UNKNOWN. */
    void (*probe)(struct engine *g, struct slice cursor);
    void (*list)(struct engine *g);
    /* Takes that are worth having under way at once: 8, or 1000 in a pipeline. */
    unsigned (*window)(const struct engine *g);
    /* Optional: files of up to *upto_bytes come many at a time, and so many are worth it beside the
     * window. 0: none. */
    unsigned (*smalls)(const struct engine *g, uint64_t *upto_bytes);
    struct download *(*download)(struct engine *g, const struct download_params *w,
                                 const struct download_events *ev, void *arg);
    void (*resume)(struct download *t);
    void (*cancel)(struct download **tp); /* of one alone; the engine goes on. NULL is fine */
    /* Nothing more is asked: phases end, goodbyes are said, then on_finished. */
    void (*finish)(struct engine *g);
    void (*close)(struct engine **gp); /* at any time, takes under way included. NULL is fine */
};

/* By name (NULL: by the URL's scheme); engines.def. NULL: there is none. */
const struct engine_ops *engine_find(const char *name, struct slice url);

enum sync_class {
    SYNC_OK,
    /* E_NETWORK, E_TIMEOUT, E_BUSY, E_AGAIN, E_PROTOCOL, E_IO: later, or at another upstream */
    SYNC_RETRY,
    /* Of a take alone: E_NOTFOUND (vanished), E_CHANGED (not what was listed), E_CORRUPT
     * (digest). */
    SYNC_ENTRY,
    SYNC_HERE,    /* E_NOSPACE: our own trouble; what has come stays */
    SYNC_STOPPED, /* E_CANCELLED */
    SYNC_FINAL, /* all others: E_DENIED, E_CONFIG, E_UNSUPPORTED, E_INVALID, E_TOOBIG, and E_NOTFOUND of a list */
};
enum sync_class sync_class_of(int rc, bool of_download);

#endif
