/* state.h - the parts of a store; for the files of this folder only.
 *
 * owns     struct store owns its descriptors and parts; store_close() ends them
 * threads  as each part says
 */
#ifndef SERVER_STORE_STATE_H
#define SERVER_STORE_STATE_H

#include "server/store/atime.h"
#include "server/store/blob.h"
#include "server/store/commit.h"
#include "server/store/kv.h"
#include "server/store/partial.h"
#include "server/store/seal.h"
#include "server/store/space.h"

struct store {
    char *dir;
    int lock_fd;
    int dir_fd;
    int blobs_fd;
    int partial_fd;
    int quarantine_fd;
    bool tmpfile; /* O_TMPFILE and /proc work here */
    bool was_clean;
    _Atomic uint64_t damaged, damaged_since_unix_s; /* see store_damaged() */
    struct kv *kv;
    struct space space;
    struct seals seals;
    struct atimes atimes;
    struct committer *committer;
    const struct sequencer *sequencer;             /* or NULL */
    const struct blob_source *_Atomic blob_source; /* or NULL */
    struct list stages;                            /* open ones; under space.lock */
    struct parked *parked;                         /* the same */
    struct partials *partials;
};

enum { BLOB_PATH = 6 + DIGEST_HEX + 1 }; /* "ab/cd/<hex>" and NUL */
void blob_path(const struct digest *d, char out[BLOB_PATH]);
enum { STAGE_NAME = 16 + 1 };
void stage_name(uint64_t id, char out[STAGE_NAME]);
/* The source has it. size_bytes may be NULL. */
bool blob_is_elsewhere(struct store *s, const struct digest *d, uint64_t *size_bytes);
bool stage_is_open(struct store *s, uint64_t id);
void parked_fini(struct store *s); /* forgets which stages are parked; their files stay */
/* A handle of an existing file that must have that size; E_NOTFOUND, E_CORRUPT. */
MUST_USE int blob_open_file(struct store *s, const struct digest *d, uint64_t size_bytes,
                            struct blob **out, struct err *e);
/* takes fd; has no digest */
struct blob *blob_of_fd(int fd, uint64_t size_bytes);
struct blob *blob_of_bytes(const struct digest *d, struct slice bytes); /* copies the bytes */

static inline struct slice digest_key(const struct digest *d)
{
    return slice_of(d->b, DIGEST_BYTES);
}

#endif
