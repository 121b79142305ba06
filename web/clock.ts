/** The service's clock. The browser's clock may be wrong by hours, so relative times on a page use this one. */

let aheadMs = 0

/** Reads the time at which the response was sent. */
export function noteServerTime({ headers }: Response): void {
  const sentAtMs = Date.parse(headers.get('date') ?? '')
  if (!Number.isNaN(sentAtMs)) aheadMs = sentAtMs - Date.now()
}

export const serverNowMs = (): number => Date.now() + aheadMs
