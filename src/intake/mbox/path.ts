/** The path on which the support chat of an account calls this service. */
export function callbackPath(oaHash: string): string {
  return `/api/mbox/callback/${oaHash}`
}
