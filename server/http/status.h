/* status.h - which status an error is answered with: the one table for all that answer.
 *
 * What passes by itself (busy, timed out, cancelled, changed meanwhile) is 503, never 504:
 * installers do not try again after that one. An origin that cannot be reached is 502, a full disk
 * 507, what a setting forbids 403. For the rest it matters whose bytes the error is about.
 *
 * threads  any
 */
#ifndef SERVER_HTTP_STATUS_H
#define SERVER_HTTP_STATUS_H

enum status_about {
    STATUS_REQUEST, /* not found 404, not allowed 403, not valid or too big 400; else as STATUS_OURS */
    STATUS_ORIGIN, /* too big, damaged, no protocol of ours: 502 */
    STATUS_OURS    /* 500 */
};
int status_of_error(int rc, enum status_about about); /* rc: E_* */

#endif
