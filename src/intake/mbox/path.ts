export function callbackPath(oaHash: string): string {
  return `/api/mbox/callback/${oaHash}`
}
