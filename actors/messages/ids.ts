/** Ids that go from thread to thread, branded, so that no other number can be passed for one. */

/** A request, or a call of a tokenizer, unique for the life of the daemon; counts up from 1. */
export type RequestId = number & { readonly brand: 'request' };
