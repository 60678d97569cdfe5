/* form_upload.h - a file that comes within a body which says more than its bytes (a form): staged
 * and hashed while it comes, looked at when it is whole, then published as one version with small
 * files that belong to it. The tree and the path are known only then, and the path must be free: a
 * file there with the same bytes is the same file, with others it stays.
 *
 * owns     form_upload_close() frees it; what was not published goes
 * threads  all block: pool threads, one call at a time
 * errors   as upload.h: what the client did is a status in the reply, and the form upload is then
 *          of no use
 */
#ifndef SERVER_UPLOAD_FORM_UPLOAD_H
#define SERVER_UPLOAD_FORM_UPLOAD_H

#include "server/store/blob.h"
#include "server/upload/upload.h"

struct form_upload;
/* p: repo, note, max_bytes; copied. */
struct form_upload *form_upload_open(struct uploads *u, const struct put *p);
/* The file's next bytes: 413, 507. */
MUST_USE int form_upload_write(struct form_upload *k, struct slice bytes, struct upload_reply *out,
                               struct err *e);
uint64_t form_upload_bytes(const struct form_upload *k);
const struct digest *form_upload_digest(struct form_upload *k); /* no more bytes come */
/* To be read. An empty file cannot be looked at: E_INVALID. */
MUST_USE int form_upload_look(struct form_upload *k, struct blob **out, struct err *e);

struct form_upload_beside { /* a small file that goes along */
    struct slice path, bytes;
};
/* 201; 200: it is there, with these bytes; 409: with others; 410, 507. */
MUST_USE int form_upload_publish(struct form_upload *k, struct slice tree, struct slice path,
                                 const struct form_upload_beside *beside, size_t count,
                                 uint64_t now_unix_s, struct upload_reply *out, struct err *e);
void form_upload_close(struct form_upload **kp); /* NULL is fine */

#endif
