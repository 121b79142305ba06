/** The path that the support chat of an account calls. */
export function callbackPath(oaHash: string): string {
  return `/api/mbox/callback/${oaHash}`
}
