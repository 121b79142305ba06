export const plot = () => ''
