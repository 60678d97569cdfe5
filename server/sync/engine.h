/* engine.h - the interface of an engine, which speaks to one kind of upstream: rsync, HTTP,
 * another mirrord...
 *
 * An engine lists what the upstream has and downloads what is requested. It knows neither
 * snapshots nor plans: plan.c compares the list with the published head. So an engine keeps
 * nothing between two runs except an opaque cursor. One engine object is one visit: open, maybe
 * probe, list once, start any number of downloads, finish, close. When the connection breaks, the
 * pipeline opens another engine, lists again, and requests only what is still missing.
 *
 * order    probe and list answer once each, list before the first download. Events never run
 *          inside the call that starts something, nor inside cancel and close. After cancel and
 *          close no event follows
 * memory   entries are handed over one by one, in any order, and the engine keeps none for the
 *          pipeline: a list of 1 M entries must fit in 100 MiB together with the pipeline's copy
 *          (some 45 bytes an entry). An engine that must keep its list (rsync's indices) keeps
 *          what a request needs, and sets `ref` to find it by
 * threads  all on the run's own thread, which has its own event_base (site.base). It may block for
 *          a row or a page of a file, never for a peer or an fsync. Long work goes to site.disk,
 *          whose jobs reply to site.box
 * errors   sync_class_of() says how the pipeline reacts to a code. Sentences name the host and the
 *          reason, never a secret
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
    uint64_t client; /* the run's own: runs take turns on the disk as clients do (pool.h) */
    struct store *store;
    struct origin_client *origin_client; /* on base; for engines that speak HTTP */
    const struct origin
        *origin; /* of http, https and s3, else NULL: proxy, credentials, admission */
    /* the run's repository: for stage rows of files that a list contains in full */
    struct slice repo;
    struct slice url;             /* "rsync://host[:port]/module/path/", "https://host/path/" */
    const char *secret;           /* "user:password" when no origin has it; or NULL */
    const char *ca_file;          /* or NULL: the system's */
    const char *proxy, *no_proxy; /* or NULL; for engines without an origin (proxy.h) */
    /* or NULL. The pipeline asks it about every entry; an engine may ask earlier, to list less */
    struct file_filter *file_filter;
    const struct sync_conf *conf; /* the whole section, for engines that have settings */
    const char *probe;            /* path of a file that changes whenever anything does; or NULL */
    /* simultaneous requests, for engines that open a connection for each */
    uint32_t parallel;
    uint32_t connect_ms, stall_ms;
    uint64_t entries_max;    /* of a list; more is E_TOOBIG */
    uint64_t list_bytes_max; /* of all list documents together */
    /* Called before a stage fails for lack of room. 0: there is room now. For engines that store
     * parts of a list. */
    int (*make_room)(void *arg, uint64_t need_bytes);
    void *make_room_arg;
    /* writes a line to the run's log */
    void (*log)(void *arg, const char *fmt, ...) PRINTF_LIKE(2, 3);
    void *log_arg;
};

enum probe_answer { PROBE_UNKNOWN, PROBE_SAME, PROBE_CHANGED };

struct engine_listed {   /* what is known after the list */
    struct slice cursor; /* opaque, at most 4 KiB, for the next probe; or p == NULL */
    bool partial;        /* the upstream could not read all of its files: nothing may be removed */
    bool digests;        /* every file has its digest */
    /* The root of the tree that the entries make, when the upstream reported it: the run
     * publishes that root or nothing. Or NULL. */
    const struct digest *root;
    /* Why a person should check the tree before it is published, although it is complete; or
     * NULL. The run is held. */
    const char *doubt;
    int64_t top_mtime_ns; /* of the listed folder; 0: not known */
    uint64_t wire_bytes;  /* bytes that the list cost */
    uint64_t left_out;    /* devices, sockets, invalid names */
};

struct engine_events { /* of the whole engine */
    void (*on_probe)(void *arg, enum probe_answer a);
    /* 0, or an E_* that ends the list with it. */
    int (*on_entry)(void *arg, const struct sync_entry *en);
    void (*on_listed)(void *arg, int rc, const struct err *why, const struct engine_listed *l);
    /* Every download has ended, and engine_finish() is done. All bytes have arrived, whether rc
     * is 0 or not. */
    void (*on_finished)(void *arg, int rc, const struct err *why);
    /* At most once: no further download will be answered. Only close may be called. */
    void (*on_broken)(void *arg, int rc, const struct err *why);
};

/* --- one entry's bytes --- */

struct download_params {
    const struct sync_entry *entry; /* as listed, ref included; borrowed during the call */
    /* the path's former bytes, as the basis of a delta; or NULL. Borrowed like entry */
    struct blob *basis;
    /* An earlier try left this many bytes, which came under `validator`. The engine continues
     * after them when it can make sure that the rest belongs to them; else it begins at 0. */
    uint64_t have_bytes;
    struct slice validator;
    bool basis_begins; /* the basis is a prefix of this very file (engine_ops.from_basis) */
    bool again; /* it arrived completely and did not match: use another way, if there is one */
    /* all bytes of `validator` are here: "not modified" is a valid answer */
    bool unchanged_is_fine;
};

struct download_result {
    bool unchanged; /* with unchanged_is_fine: nothing was sent, the file is as it was */
    /* nothing was sent: the list may name files that do not exist, and that is fine */
    bool absent;
    int64_t mtime_ns;       /* more exact than the list's; SYNC_TIME_UNKNOWN */
    struct slice validator; /* strong, of the bytes that arrived; or p == NULL */
    bool digest_known;      /* the upstream states the bytes' SHA-256 */
    struct digest digest;
    uint64_t beside_bytes; /* bytes received for it that are not part of it */
};

struct download_events {
    /* Before the first byte of a try, which begins at `at`: 0 or have_bytes. Bytes given before
     * from there on are void. Called more than once when a digest of the engine failed, or the
     * upstream's file changed. */
    int (*on_begin)(void *arg, uint64_t at, struct slice validator);
    /* Bytes in order. Returns 0, DOWNLOAD_PAUSE (taken, but send no more until take_resume()), or
     * an E_* that ends this download. */
    int (*on_body)(void *arg, struct slice bytes);
    /* Exactly once, and last: the download is gone when it returns. got: only with rc 0. */
    void (*on_done)(void *arg, int rc, const struct err *why, const struct download_result *got);
    /* As on_body, for bytes that cost wire_bytes to transfer. */
    int (*on_packed)(void *arg, struct slice bytes, uint64_t wire_bytes);
    /* As on_body, for bytes that were already here: nothing was transferred. */
    int (*on_copy)(void *arg, struct slice bytes);
};
enum { DOWNLOAD_PAUSE = 1 };

struct download; /* one in progress; each engine's own */

struct engine_ops {
    const char *name;           /* "http", "rsync": the value of `engine =` */
    const char *const *schemes; /* of URLs, ends with NULL: "rsync", "rsyncs" */
    /* It never continues after have_bytes: what an earlier run left is given as the basis. */
    bool from_basis;
    /* Sends nothing yet. E_CONFIG, E_INVALID: the URL or the site is invalid. */
    int (*open)(const struct engine_site *site, const struct engine_events *ev, void *arg,
                struct engine **out, struct err *e);
    /* cursor: from engine_listed, for the published head. May be NULL: then the probe says
     * PROBE_UNKNOWN. */
    void (*probe)(struct engine *g, struct slice cursor);
    void (*list)(struct engine *g);
    /* How many simultaneous downloads are useful: 8, or 1000 in a pipeline. */
    unsigned (*window)(const struct engine *g);
    /* Optional: files of up to *upto_bytes come in batches; the number of them that is useful
     * beside the window. 0: no batches. */
    unsigned (*smalls)(const struct engine *g, uint64_t *upto_bytes);
    struct download *(*download)(struct engine *g, const struct download_params *w,
                                 const struct download_events *ev, void *arg);
    void (*resume)(struct download *t);
    void (*cancel)(struct download **tp); /* of this one only; the engine goes on. NULL is fine */
    /* Nothing more is requested: ends the protocol's phases, says goodbye, then calls
     * on_finished. */
    void (*finish)(struct engine *g);
    /* at any time, also with downloads in progress. NULL is fine */
    void (*close)(struct engine **gp);
};

/* By name, or by the URL's scheme if name is NULL; engines.def. NULL: none. */
const struct engine_ops *engine_find(const char *name, struct slice url);

enum sync_class {
    SYNC_OK,
    /* E_NETWORK, E_TIMEOUT, E_BUSY, E_AGAIN, E_PROTOCOL, E_IO: later, or at another upstream */
    SYNC_RETRY,
    /* Of one download: E_NOTFOUND (vanished), E_CHANGED (not what was listed), E_CORRUPT
     * (digest). */
    SYNC_ENTRY,
    SYNC_HERE,    /* E_NOSPACE: a problem on this machine; what has arrived stays */
    SYNC_STOPPED, /* E_CANCELLED */
    /* everything else: E_DENIED, E_CONFIG, E_UNSUPPORTED, E_INVALID, E_TOOBIG; E_NOTFOUND of a
     * list */
    SYNC_FINAL,
};
enum sync_class sync_class_of(int rc, bool of_download);

#endif
