/** The channel's name: the routes `line`, `Line` and `line-oa` come from it. */
export const LINE = 'line'

const capitalised = LINE.charAt(0).toUpperCase() + LINE.slice(1)

/** Where an account's deliveries are taken; the first is the one to set up. */
export function deliveryPaths(id: string): string[] {
  return [`/api/${LINE}/${id}`, `/api/${capitalised}/${id}`]
}
