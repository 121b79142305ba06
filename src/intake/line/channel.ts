export const LINE = 'line'

const capitalised = LINE.charAt(0).toUpperCase() + LINE.slice(1)

/** The paths of an account's webhook. The first one is configured on the platform. */
export function deliveryPaths(id: string): string[] {
  return [`/api/${LINE}/${id}`, `/api/${capitalised}/${id}`]
}
