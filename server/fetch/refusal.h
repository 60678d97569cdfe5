/* refusal.h - an origin's no whose reason stands in its body: the head is kept until that has come.
 *
 * owns     copies of all that is kept; refusal_free() frees
 * threads  one at a time
 */
#ifndef SERVER_FETCH_REFUSAL_H
#define SERVER_FETCH_REFUSAL_H

#include "common/base/arena.h"
#include "common/xfer/xfer.h"
#include "server/fetch/s3.h"

struct refusal {
    struct xfer_head head; /* without a body */
    struct s3_no no;       /* once it is judged */
    struct buf body;
    struct arena arena;
};

/* Is it one, of a bucket? */
bool refusal_is(const struct xfer_head *h);
struct refusal *refusal_new(const struct xfer_head *h);
void refusal_add(struct refusal *r, struct slice bytes); /* what is too long goes unread */
/* As s3_no_judge(); and r->no is there. */
MUST_USE int refusal_judge(struct refusal *r, const struct s3 *b, struct err *e);
void refusal_free(struct refusal **rp); /* NULL is fine */

#endif
