/* mirrors.h - the mirrors that have the same content: which one is asked for a thing, and which
 * ones have failed.
 *
 * The order for a thing is by rendezvous hashing of its key (its digest if that is known, else its
 * path) over the URLs of the list. So the nodes of a cluster ask the same mirror for the same file,
 * and another file of another mirror, however each of them has ordered its list. A mirror that
 * failed rests for 5 s, then 10, up to 60, and one that sent wrong bytes for 60 s: it is asked only
 * after those that do not rest. After that one request probes it, while the others do as if it
 * still rested.
 *
 * The agent writes all URLs below the first mirror of the list. mirrors_at() gives the URL of the
 * same thing at another one, mirrors_plain() turns that back.
 *
 * owns     mirrors_close() frees
 * threads  one at a time
 */
#ifndef AGENT_MIRRORS_H
#define AGENT_MIRRORS_H

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/hash/digest.h"

struct mirrors;
struct url;

enum { MIRRORS_MAX = 64, MIRROR_NONE = MIRRORS_MAX };

/* list: URLs as people write them, with commas between them. E_USAGE: one is none, or there are
 * too many. One that is named twice counts once. */
MUST_USE int mirrors_open(struct slice list, struct mirrors **out, struct err *e);
void mirrors_close(struct mirrors **mp); /* NULL is fine */

unsigned mirrors_count(const struct mirrors *m);
/* "http://mirror:8080/prefix", no '/' at the end */
struct slice mirrors_url(const struct mirrors *m, unsigned i);
/* Are all of these mirrors in that list? */
bool mirrors_are_in(const struct mirrors *m, struct slice list);
/* The mirror whose scheme, host and port the URL has, or MIRROR_NONE. */
unsigned mirrors_find(const struct mirrors *m, struct slice url);

/* The URL of the same thing at mirror i. One that is not below the first mirror stays as it is. */
struct slice mirrors_at(const struct mirrors *m, unsigned i, struct slice url, struct arena *a);
struct slice mirrors_plain(const struct mirrors *m, unsigned i, struct slice url, struct arena *a);

/* The key of a thing without a known digest: of its path below the mirror. A folder has the same
 * with and without a '/' at its end: it is read where it was published. */
void mirrors_key(const struct mirrors *m, struct slice url, struct digest *out);

/* Which mirrors come into question after those that were tried. */
enum mirrors_which {
    MIRRORS_ALL,   /* those that rest come last, the one whose rest ends first before the others */
    MIRRORS_FRESH, /* only those that do not rest */
};
/* Is there one that does not rest? */
bool mirrors_any_fresh(const struct mirrors *m, uint64_t now_ms);
/* The next mirror for a key, which is then asked. tried: a bit for each one that was asked already.
 * MIRROR_NONE: no other comes into question. */
unsigned mirrors_choose(struct mirrors *m, const struct digest *key, uint64_t tried,
                        enum mirrors_which which, uint64_t now_ms);

void mirrors_failed(struct mirrors *m, unsigned i, uint64_t now_ms);
void mirrors_lied(struct mirrors *m, unsigned i, uint64_t now_ms); /* it sent wrong bytes */
/* If it is not resting, its next failure is the first again. */
void mirrors_worked(struct mirrors *m, unsigned i);

#endif
