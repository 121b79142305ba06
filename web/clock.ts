/** The service's clock. The one of the browser may be wrong by hours, and times on a page are compared with it. */

let aheadMs = 0

/** Every answer carries the time at which it was sent. */
export function noteServerTime({ headers }: Response): void {
  const sentAtMs = Date.parse(headers.get('date') ?? '')
  if (!Number.isNaN(sentAtMs)) aheadMs = sentAtMs - Date.now()
}

export const serverNowMs = (): number => Date.now() + aheadMs
