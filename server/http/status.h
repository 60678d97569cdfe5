/* status.h - the status for an error: the one table for all answers.
 *
 * A temporary error (busy, timed out, canceled, changed in the meantime) is 503, never 504, because
 * installers do not retry after a 504. An origin that cannot be reached is 502, a full disk 507, an
 * operation that a setting forbids 403. For all other errors it matters whose bytes the error is
 * about.
 *
 * owns     nothing
 * threads  any
 */
#ifndef SERVER_HTTP_STATUS_H
#define SERVER_HTTP_STATUS_H

enum status_about {
    /* not found 404, not allowed 403, invalid or too big 400; else as STATUS_OURS */
    STATUS_REQUEST,
    STATUS_ORIGIN, /* too big, damaged, protocol error: 502 */
    STATUS_OURS    /* 500 */
};
int status_of_error(int rc, enum status_about about); /* rc: E_* */

#endif
