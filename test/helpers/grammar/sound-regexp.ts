/**
 * Whether the regular expressions of this JavaScript engine can judge a text. V8 of Node 26.10 says no to /[^a]$/u on '😀', as no version
 * before it did: there, texts with characters beyond 16 bits are not judged by patterns.
 */
const sound = /[^a]$/u.test('😀');

export const judgeable = (text: string): boolean => sound || !/[\ud800-\udfff]/.test(text);
